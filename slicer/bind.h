/*
 * bind.h - an architecture's rows bound to a checkpoint's tensors: every row finds its tensors in the right dtypes and shapes,
 * every tensor is claimed by a row or known as one that no engine loads. What is left over refuses the checkpoint.
 */
#ifndef SLICER_BIND_H
#define SLICER_BIND_H

#include "slicer/arch.h"
#include "slicer/error.h"
#include "slicer/model.h"

#define SL_MODULE_NAME_MAX 512

/* Fill model->bound, head_dim where the configuration does not say it, drafts and n_ignored. */
int sl_bind(struct sl_model *model, struct sl_error *err) SL_MUST_CHECK;

/* Layers of a stack: 1 for one that is there once. */
uint64_t sl_stack_layers(const struct sl_model *model, const struct sl_stack *stack);

/* Modules of a row in one layer: the experts for a row with "%e", else 1; 1 too for a model that has none. */
uint64_t sl_row_modules(const struct sl_model *model, const struct sl_stack *stack, const struct sl_weight *row);

/* "model.layers.7." from "model.layers.%u.", into `out` of SL_MODULE_NAME_MAX bytes; returns its length. */
size_t sl_stack_prefix(const char *name, uint64_t layer, char *out);

/* Append to a name in such a buffer, of which `len` bytes are there; returns the new length. What does not fit is cut.
 * sl_name_append_expert() puts the expert's number in place of "%e". */
size_t sl_name_append(char *name, size_t len, const char *text);
size_t sl_name_append_expert(char *name, size_t len, const char *text, uint64_t expert);

/* The module of a row in a layer; `expert` is 0 for rows without. */
static inline const struct sl_bound *sl_bound_at(const struct sl_model *model, unsigned stack, uint64_t layer,
						 unsigned row, uint64_t expert)
{
	const struct sl_binding *b = &model->bound[stack];

	return &b->modules[layer * b->per_layer + b->row_start[row] + expert];
}

/* Are all modules of a row in a layer, of which there are several, stored in tensors of the same dtypes and shapes? */
static inline bool sl_is_alike(const struct sl_model *model, unsigned stack, uint64_t layer, unsigned row,
			       unsigned n_rows)
{
	const struct sl_binding *b = &model->bound[stack];

	return b->row_start[row + 1] - b->row_start[row] > 1 && b->alike[layer * n_rows + row];
}

/* The tensor of a component, or of the bias; NULL when it is not stored. */
const struct sl_tensor *sl_bound_tensor(const struct sl_model *model, const struct sl_bound *bound, unsigned component);
const struct sl_tensor *sl_bound_bias(const struct sl_model *model, const struct sl_bound *bound);

/* A matrix as it is stored, of one expert where a tensor has all of them: all axes but the first taken as one, a vector as
 * a column. Conv1D weights are [in, out] here. */
struct sl_matrix {
	uint64_t rows, cols;
};
struct sl_matrix sl_stored_matrix(const struct sl_tensor *tensor, const struct sl_weight *row);

/* The logical matrix [out, in] of a bound module. */
struct sl_matrix sl_logical_matrix(const struct sl_model *model, const struct sl_weight *row,
				   const struct sl_bound *bound);

/* Logical rows and columns that one stored element of a component stands for; 0 for the whole axis. Groups follow from the
 * shapes. */
struct sl_units {
	uint64_t out, in;
};
struct sl_units sl_units_of(const struct sl_model *model, const struct sl_weight *row, const struct sl_bound *bound,
			    unsigned component);

/* A stored tensor of a cache scale, and which of the scale's names it has below the attention. */
struct sl_stored_scale {
	const struct sl_tensor *tensor;
	const char *name; /* `len` bytes */
	size_t len;
};

/* The first of `names` (a scale's, or what is left of them) that is stored in a layer; false when none is. What is left of the
 * names behind it begins at found->name + found->len. */
bool sl_cache_scale_find(const struct sl_model *model, const struct sl_stack *stack, const struct sl_attention *attn,
			 uint64_t layer, const char *names, struct sl_stored_scale *found);

/* kv heads of a fused or separate row, from its own rows: they may differ between layers. */
uint64_t sl_kv_heads(const struct sl_model *model, enum sl_part part, const struct sl_weight *row, uint64_t out);

#endif
