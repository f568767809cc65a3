/*
 * view.h - what one rank of one engine wants of a model, planned.
 *
 *      engine + layout + stage + rank  ->  tensors, each with its pieces  ->  files, each with a header and pieces
 *
 * A view is planned whole when it is opened and const from then on; reading goes through file.h.
 */
#ifndef SLICER_VIEW_H
#define SLICER_VIEW_H

#include "slicer/arena.h"
#include "slicer/engine.h"
#include "slicer/error.h"
#include "slicer/file.h"
#include "slicer/layout.h"
#include "slicer/model.h"

struct sl_recipe;

/* What was done to a tensor after it was loaded, the last first. */
struct sl_done {
	const struct sl_recipe *recipe; /* post.h */
	const struct sl_done *before;	/* NULL: nothing */
};

/* A tensor as the engine holds it. */
struct sl_output {
	const char *name;
	const uint64_t *shape;
	uint64_t len;		       /* bytes */
	uint64_t off;		       /* of its bytes in the weight file that has it */
	const struct sl_piece *pieces; /* in that file: piece.off counts from the start of the file */
	const struct sl_done *done;    /* NULL: as it was loaded */
	const char *kernel;	       /* for which of the engine's; NULL: nobody asks */
	uint32_t n_pieces;	       /* 0 for an empty tensor */
	uint32_t file;		       /* index into sl_view.files */
	uint32_t section; /* position in execution order: what is before the layers, each layer, what is after */
	uint32_t stored;  /* 1 + index of the stored tensor of which it is a block; 0: it is none, or nobody asks */
	uint8_t dtype;
	uint8_t n_dims;
	bool turned; /* the engine holds it as a view whose last two axes are swapped */
};

struct sl_view {
	struct sl_arena arena;
	const struct sl_model *model;
	const struct sl_engine *engine;
	struct sl_layout layout;
	unsigned stage, rank; /* pipeline stage and tensor-parallel rank */
	struct sl_output *tensors;
	uint32_t n_tensors; /* in execution order */
	struct sl_file *files;
	uint32_t n_files; /* weight files in the order in which the engine executes them, then what the engine wants
			   * beside them and we compute (config.json, an index); n_weights counts the first kind */
	uint32_t n_weights;
	uint64_t bytes; /* of all tensors */
};

struct sl_view_options {
	uint64_t part_bytes; /* a weight file is split at tensors above this; 0: as the engine's row says */
	int gpu;	     /* 1 + enum sl_gpu, for paddings that kernels want; 0: sm90 */
};

/* Plan. -EINVAL with a sentence when this model cannot have that layout. `options` may be NULL. */
int sl_view_open(struct sl_view **out, const struct sl_model *model, const struct sl_engine *engine,
		 const struct sl_layout *layout, unsigned stage, unsigned rank, const struct sl_view_options *options,
		 struct sl_error *err) SL_MUST_CHECK;
void sl_view_close(struct sl_view *view);

/* Can this model have that layout? Cheap: checks what planning would refuse, without planning. 0 or -EINVAL. */
int sl_layout_check(const struct sl_model *model, const struct sl_engine *engine, const struct sl_layout *layout,
		    struct sl_error *err) SL_MUST_CHECK;

/* The tensor of that name, or NULL. */
const struct sl_output *sl_view_find(const struct sl_view *view, const char *name);

/* One output tensor as a .npy file of its own: header, then the tensor's pieces. BF16 and 8-bit floats have no numpy
 * type: their raw words are served as '<u2' and '|u1', row-major, as documented in README. Allocated in `arena`. */
int sl_view_npy(const struct sl_view *view, const struct sl_output *tensor, struct sl_arena *arena,
		struct sl_file *file, struct sl_error *err) SL_MUST_CHECK;

/* A file of the source that an engine directory shows unchanged (tokenizer, generation_config.json, …)? `name` is a
 * path relative to the source directory. Weights, their indexes, and files that the view computes itself are not. */
bool sl_view_passes(const char *name);

#endif
