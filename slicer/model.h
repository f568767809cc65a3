/*
 * model.h - a checkpoint that has been understood completely: files, tensors, configuration, architecture.
 *
 * sl_model_open() either accounts for every tensor of the directory or refuses it. After it returns everything is
 * const: threads share a model without a lock. Views (view.h) hold a pointer to their model and must be closed first.
 */
#ifndef SLICER_MODEL_H
#define SLICER_MODEL_H

#include "slicer/arena.h"
#include "slicer/config.h"
#include "slicer/error.h"
#include "slicer/shards.h"
#include <stdint.h>

#define SL_STACKS_MAX 12

struct sl_arch;

/* The stored tensors of one row of a stack: NULL where the checkpoint has none and needs none. */
struct sl_bound {
	const struct sl_tensor *weight, *bias;
};

struct sl_model_options {
	enum sl_format format;
};

struct sl_model {
	struct sl_arena arena;
	struct sl_shards shards;
	struct sl_config config;
	const struct sl_arch *arch;
	struct sl_bound *bound[SL_STACKS_MAX]; /* per stack of the architecture: layers x rows, layer by layer (bind.h) */
	enum sl_dtype dtype;         /* what engines make of it with --dtype auto */
	bool tied;                   /* by config or by the family's default: lm_head is the embedding */
	bool head_stored;            /* the checkpoint has an lm_head */
	uint64_t n_ignored;          /* tensors that no engine loads (masks, rotary tables, zero biases of quantisers) */
	uint64_t total_bytes;        /* of all tensors */
	struct sl_note *notes;       /* remarks for the user, the shards' own included */
};

/* Open the checkpoint in `dir`. On failure *out is NULL and nothing is left open. `options` may be NULL. */
int sl_model_open(struct sl_model **out, const char *dir, const struct sl_model_options *options,
		  struct sl_error *err) SL_MUST_CHECK;
void sl_model_close(struct sl_model *model);
#endif
