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
#include "slicer/scheme.h"
#include "slicer/shards.h"
#include <stdint.h>

#define SL_STACKS_MAX 12

struct sl_arch;
struct sl_backend;
struct sl_cache;
struct sl_spelling;

/* How one module is stored: its format, and for each component 1 + the index of its tensor, 0 where the checkpoint has
 * none. A module that the checkpoint does not have (and need not have) has no format. */
struct sl_bound {
	const struct sl_storage *storage;
	uint32_t tensors[SL_COMPONENTS_MAX];
	uint32_t bias;
};

/* The modules of a stack: layer by layer, row by row, expert by expert. */
struct sl_binding {
	struct sl_bound *modules;
	uint32_t *row_start; /* first module of each row within a layer, and their number at the end */
	uint32_t per_layer;
	bool *alike; /* per layer and row: all its modules have tensors of the same dtypes and shapes */
};

struct sl_model_options {
	enum sl_format format;
	unsigned gpu; /* sl_model.gpu */
	struct sl_cache *cache; /* of catalogues (cache.h); NULL: none */
};

struct sl_model {
	struct sl_arena arena;
	struct sl_shards shards;
	struct sl_config config;
	const struct sl_arch *arch;
	const char *wrapper;		    /* in front of every stored name: "", "module.", … */
	const struct sl_spelling *spelling; /* of the stored names; NULL: the stacks' own */
	struct sl_quant quant;
	struct sl_binding bound[SL_STACKS_MAX]; /* per stack of the architecture (bind.h) */
	uint32_t *drafts;			/* tensors of next-n layers (MTP), which engines load apart */
	uint32_t n_drafts;
	enum sl_dtype dtype;  /* what engines make of it with --dtype auto */
	bool tied;	      /* by config or by the family's default: lm_head is the embedding */
	bool head_stored;     /* the checkpoint has an lm_head */
	uint64_t n_ignored;   /* tensors that no engine loads (masks, rotary tables, zero biases of quantisers) */
	uint64_t total_bytes; /* of all tensors */
	uint32_t first_of[SL_N_DTYPES]; /* per dtype: 1 + its first tensor, 0 for none */
	struct sl_note *notes;		/* remarks for the user, the shards' own included */
	unsigned gpu;	       /* 1 + enum sl_gpu: whose kernels are served where a layout names none; 0: sm90 */
	const struct sl_backend *backend; /* computes transforms; NULL: the processor. Set before views are opened */
	void *backend_state;
};

/* Open the checkpoint in `dir`. On failure *out is NULL and nothing is left open. `options` may be NULL. */
int sl_model_open(struct sl_model **out, const char *dir, const struct sl_model_options *options,
		  struct sl_error *err) SL_MUST_CHECK;
void sl_model_close(struct sl_model *model);
#endif
