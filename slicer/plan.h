/*
 * plan.h - a view while it is being planned: tensors and pieces in growing arrays, then laid into files.
 *
 *      view.c    walks the architecture and says which tensors the rank has
 *      emit.c    makes their pieces
 *      stored.c  stored tensors, cut along one axis, for engines with rules of their own
 *      parts.c   lays them into weight files with headers
 *      served.c  makes the files beside them
 *
 * The engine's row says which of these do it (engine.h).
 */
#ifndef SLICER_PLAN_H
#define SLICER_PLAN_H

#include "slicer/arch.h"
#include "slicer/bind.h"
#include "slicer/process.h"
#include "slicer/series.h"
#include "slicer/split.h"
#include "slicer/view.h"

struct sl_plan {
	struct sl_view *view;
	const struct sl_model *model;
	const struct sl_engine *engine;
	unsigned tp, rank;
	enum sl_gpu gpu;
	uint32_t section; /* of what is added now */
	uint64_t part_bytes;
	uint32_t expected; /* about so many tensors; room that is not used is not touched either */
	/* malloc'ed, growing; pieces of a tensor are consecutive, their .off counts from the tensor's start */
	struct sl_output *tensors;
	uint32_t n_tensors, room_tensors;
	struct sl_piece *pieces;
	uint32_t n_pieces, room_pieces;
	uint32_t *first_piece;	  /* per tensor; grows with it */
	struct sl_piece *columns; /* being laid side by side */
	uint32_t n_columns, room_columns;
	struct sl_module
		*modules; /* what the tensors belong to, in their order, where the engine processes them; in the
				    * view's arena, growing */
	uint32_t n_modules, room_modules;
	uint32_t room_files; /* of view->files, which is in the view's arena */
	/* The last share of a row of the architecture that was asked for: the next expert's is the same. */
	struct {
		const struct sl_weight *row; /* NULL: none yet */
		const struct sl_storage *storage;
		struct sl_matrix of;
		unsigned tp, rank;
		struct sl_share share;
	} last;
	struct sl_error *err;
};

/* ---- view.c ---- */

/* Add the tensors of the architecture. */
int sl_plan_stacks(struct sl_plan *plan) SL_MUST_CHECK;

/* ---- emit.c ---- */

/* Begin a tensor of dtype `dtype`; pieces that are added then belong to it. Its name is copied. */
int sl_plan_tensor(struct sl_plan *plan, const char *name, enum sl_dtype dtype) SL_MUST_CHECK;

/* End it: its shape, of which the product must be what its pieces hold. */
int sl_plan_shape(struct sl_plan *plan, const uint64_t *shape, unsigned n_dims) SL_MUST_CHECK;

/* A block of the stored matrix of one expert (0 where a tensor has no experts), rows in the engine's order, converted to the
 * begun tensor's dtype. Ranges are in stored elements. */
int sl_plan_block(struct sl_plan *plan, enum sl_part part, const struct sl_weight *row, const struct sl_tensor *tensor,
		  uint64_t expert, struct sl_range rows, struct sl_range cols) SL_MUST_CHECK;

/* The same turned: the begun tensor gets the block's columns as rows. */
int sl_plan_turned(struct sl_plan *plan, const struct sl_weight *row, const struct sl_tensor *tensor, uint64_t expert,
		   struct sl_range rows, struct sl_range cols) SL_MUST_CHECK;

/* Blocks side by side: each call adds columns to the right of the last ones, with as many rows each; the end makes one piece
 * of them. sl_plan_fill_column() adds `n` columns of a number. */
int sl_plan_column(struct sl_plan *plan, const struct sl_weight *row, const struct sl_tensor *tensor, uint64_t expert,
		   struct sl_range rows, struct sl_range cols) SL_MUST_CHECK;
int sl_plan_fill_column(struct sl_plan *plan, float value, uint64_t rows, uint64_t n) SL_MUST_CHECK;
int sl_plan_columns_end(struct sl_plan *plan) SL_MUST_CHECK;

/* Rows of a stored matrix, each block of it times its scale; the first of them begins a block. */
int sl_plan_scaled(struct sl_plan *plan, const struct sl_weight *row, const struct sl_tensor *values,
		   const struct sl_tensor *scales, const uint64_t block[2], struct sl_range rows) SL_MUST_CHECK;

/* A block of the enlarged matrix in which each stored element, of one expert, is `times` x `times` equal ones. */
int sl_plan_repeated(struct sl_plan *plan, const struct sl_weight *row, const struct sl_tensor *tensor, uint64_t expert,
		     unsigned times, struct sl_range rows, struct sl_range cols) SL_MUST_CHECK;

/* F4 values of which each row's groups of 32 have a scale of F8_E8M0, as FP8 with one for each block of 128 x 128: these
 * values, or with no values the scales. Sizes are whole blocks. */
int sl_plan_regrouped(struct sl_plan *plan, const struct sl_tensor *values,
		      const struct sl_tensor *scales) SL_MUST_CHECK;

/* All of a stored tensor, in the order in which it is stored. */
int sl_plan_whole(struct sl_plan *plan, const struct sl_tensor *tensor) SL_MUST_CHECK;

/* Elements [first, first + n) of one axis of a stored tensor, whatever axes it has besides. */
int sl_plan_slice(struct sl_plan *plan, const struct sl_tensor *tensor, unsigned axis, uint64_t first,
		  uint64_t n) SL_MUST_CHECK;

/* The begun tensor has the pieces of the first of `n` experts, made of the lanes' tensors: make it all of them, if it can be
 * said as a series. False when it cannot; it is as it was then, and may be without memory. */
bool sl_plan_series(struct sl_plan *plan, const struct sl_lane *lanes, unsigned n_lanes, uint32_t first, uint32_t step,
		    uint64_t n);

/* Bytes that live as long as the view. */
int sl_plan_data(struct sl_plan *plan, const void *data, uint64_t len) SL_MUST_CHECK;

/* `n` elements of a value. */
int sl_plan_fill(struct sl_plan *plan, float value, uint64_t n) SL_MUST_CHECK;

/* A piece that is made already; its .off is filled in. */
int sl_plan_piece(struct sl_plan *plan, const struct sl_piece *piece) SL_MUST_CHECK;

/* The dtype of the engine's floats: the layout's, else the model's. */
enum sl_dtype sl_plan_float(const struct sl_plan *plan);
enum sl_dtype sl_float_of(const struct sl_model *model, const struct sl_engine *engine, const struct sl_layout *layout);

/* ---- stored.c ---- */

/* A part of a stored tensor along one axis. */
struct sl_cut {
	int axis; /* -1: all of it */
	uint64_t first, n;
};

/* Add a stored tensor, or that part of it, under a name, in its own dtype. */
int sl_plan_stored(struct sl_plan *plan, const char *name, const struct sl_tensor *tensor,
		   const struct sl_cut *cut) SL_MUST_CHECK;

/* Add rows [first, first + n) of a stored matrix of whole heads to the begun tensor, the halves of each head to pairs: row
 * 2i + j is row i of half j. Two rows side by side are one row of twice the width. */
int sl_plan_pairs(struct sl_plan *plan, const struct sl_tensor *tensor, uint64_t first, uint64_t n) SL_MUST_CHECK;

/* An equal share of an axis; refused when it does not divide. */
int sl_cut_evenly(struct sl_cut *cut, const struct sl_tensor *tensor, int axis, const struct sl_layout *layout,
		  unsigned rank, struct sl_error *err) SL_MUST_CHECK;

/* ---- parts.c ---- */

/* How tensors become weight files: fills view->tensors, files and n_weights. To add one: a file with its function, and an
 * engine's row that names it. */
struct sl_container {
	const char *name;
	int (*lay)(struct sl_plan *plan);
};

extern const struct sl_container sl_safetensors, sl_pth;

/* One more file at the end of view->files, of which earlier pointers are no good then; NULL without memory. */
struct sl_file *sl_plan_file(struct sl_plan *plan);

/* The same for a file of bytes in memory, with a piece of its own. */
int sl_plan_text_file(struct sl_plan *plan, const char *name, const char *text, size_t len) SL_MUST_CHECK;

/* The tensors are the view's from now on: its files refer to them. */
int sl_plan_keep_tensors(struct sl_plan *plan) SL_MUST_CHECK;

/* What was malloc'ed for it, but for what the view keeps. */
void sl_plan_release(struct sl_plan *plan);

/* Copy the pieces of a file's tensors to `at`, where the tensors' .off is; returns where those of the next file go. */
struct sl_piece *sl_plan_lay_pieces(const struct sl_plan *plan, struct sl_output *const *tensors, uint32_t n,
				    struct sl_piece *at);

/* ---- served.c ---- */

/* config.json where it differs from the source's. */
int sl_serve_config(struct sl_plan *plan) SL_MUST_CHECK;

/* model.safetensors.index.json. */
int sl_serve_index(struct sl_plan *plan) SL_MUST_CHECK;

/* Both: a rank's directory is a model of its own. */
int sl_serve_model(struct sl_plan *plan) SL_MUST_CHECK;

/* ---- what rows of engine.c point at ---- */

char *sl_name_vllm(const struct sl_plan *plan, uint32_t i, uint32_t n); /* names.c */
char *sl_name_hf(const struct sl_plan *plan, uint32_t i, uint32_t n);
void sl_metadata_format(const struct sl_plan *plan, struct sl_output *const *tensors, uint32_t n, struct sl_text *text);

/* engine_deepseek.c */
int sl_deepseek_check(const struct sl_model *model, const struct sl_engine *engine, const struct sl_layout *layout,
		      struct sl_error *err);
int sl_deepseek_plan(struct sl_plan *plan);
char *sl_deepseek_name(const struct sl_plan *plan, uint32_t i, uint32_t n);
bool sl_deepseek_passes(const char *name);

/* engine_airllm.c */
int sl_airllm_check(const struct sl_model *model, const struct sl_engine *engine, const struct sl_layout *layout,
		    struct sl_error *err);
int sl_airllm_plan(struct sl_plan *plan);
char *sl_airllm_name(const struct sl_plan *plan, uint32_t i, uint32_t n);
int sl_airllm_beside(struct sl_plan *plan);

/* engine_serverlessllm.c */
extern const struct sl_container sl_serverlessllm_store;
int sl_serverlessllm_check(const struct sl_model *model, const struct sl_engine *engine, const struct sl_layout *layout,
			   struct sl_error *err);
char *sl_serverlessllm_name(const struct sl_plan *plan, uint32_t i, uint32_t n);

/* engine_gpt_oss.c */
int sl_gpt_oss_check(const struct sl_model *model, const struct sl_engine *engine, const struct sl_layout *layout,
		     struct sl_error *err);
int sl_gpt_oss_plan(struct sl_plan *plan);
char *sl_gpt_oss_name(const struct sl_plan *plan, uint32_t i, uint32_t n);
int sl_gpt_oss_beside(struct sl_plan *plan);

/* engine_sglang.c */
extern const struct sl_choice sl_sglang_choices[];
int sl_sglang_check(const struct sl_model *model, const struct sl_engine *engine, const struct sl_layout *layout,
		    struct sl_error *err);
int sl_sglang_plan(struct sl_plan *plan);
enum sl_dtype sl_sglang_dtype(const struct sl_model *model);
struct sl_range sl_sglang_layers(uint64_t layers, unsigned stages, unsigned stage);

/* engine_meta.c */
int sl_meta_check(const struct sl_model *model, const struct sl_engine *engine, const struct sl_layout *layout,
		  struct sl_error *err);
int sl_meta_plan(struct sl_plan *plan);
char *sl_meta_name(const struct sl_plan *plan, uint32_t i, uint32_t n);
int sl_meta_beside(struct sl_plan *plan);

/* engine_gguf.c */
extern const struct sl_container sl_gguf_container;
int sl_gguf_check(const struct sl_model *model, const struct sl_engine *engine, const struct sl_layout *layout,
		  struct sl_error *err);
int sl_gguf_plan(struct sl_plan *plan);
char *sl_gguf_name(const struct sl_plan *plan, uint32_t i, uint32_t n);

/* engine_kernel.c */
extern const struct sl_choice sl_kernel_choices[];
int sl_kernel_beside(struct sl_plan *plan);

/* engine_dcp.c */
int sl_dcp_check(const struct sl_model *model, const struct sl_engine *engine, const struct sl_layout *layout,
		 struct sl_error *err);
int sl_dcp_plan(struct sl_plan *plan);
char *sl_dcp_name(const struct sl_plan *plan, uint32_t i, uint32_t n);
void sl_dcp_metadata(const struct sl_plan *plan, struct sl_output *const *tensors, uint32_t n, struct sl_text *text);

#endif
