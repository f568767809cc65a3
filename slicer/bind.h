/*
 * bind.h - an architecture's rows bound to a checkpoint's tensors: every row finds its tensor in the right shape, every
 * tensor is claimed by a row or known as one that no engine loads. What is left over refuses the checkpoint.
 */
#ifndef SLICER_BIND_H
#define SLICER_BIND_H

#include "slicer/arch.h"
#include "slicer/error.h"
#include "slicer/model.h"

#define SL_MODULE_NAME_MAX 512

/* Fill model->bound, head_dim where the configuration does not say it, head_stored and n_ignored. */
int sl_bind(struct sl_model *model, struct sl_error *err) SL_MUST_CHECK;

/* Layers of a stack: 1 for one that is there once. */
uint64_t sl_stack_layers(const struct sl_model *model, const struct sl_stack *stack);

/* "model.layers.7." from "model.layers.%u.", into `out` of SL_MODULE_NAME_MAX bytes; returns its length. */
size_t sl_stack_prefix(const char *name, uint64_t layer, char *out);

/* Append to a name in such a buffer, of which `len` bytes are there; returns the new length. What does not fit is cut. */
size_t sl_name_append(char *name, size_t len, const char *text);

/* The tensors of row `row` in a layer. */
static inline const struct sl_bound *sl_bound_at(const struct sl_model *model, unsigned stack, uint64_t layer, unsigned row)
{
	return &model->bound[stack][layer * model->arch->stacks[stack].n_weights + row];
}

/* A weight's logical shape [out, in]: Conv1D turned, all axes but the first taken as one; in is 1 for a vector. */
struct sl_matrix {
	uint64_t out, in;
};
struct sl_matrix sl_matrix_of(const struct sl_tensor *tensor, const struct sl_weight *row);

/* kv heads of a fused or separate row, from its own rows: they may differ between layers. */
uint64_t sl_kv_heads(const struct sl_model *model, enum sl_part part, const struct sl_weight *row, uint64_t out);

#endif
