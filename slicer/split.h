/*
 * split.h - how a dimension divides over ranks and layers over stages, and which layouts a model can have.
 */
#ifndef SLICER_SPLIT_H
#define SLICER_SPLIT_H

#include "slicer/arch.h"
#include "slicer/bind.h"
#include "slicer/engine.h"
#include "slicer/error.h"
#include "slicer/layout.h"
#include "slicer/model.h"

/* Rows or columns [first, first + n) of a tensor, and `zero` rows of padding behind them. */
struct sl_range {
	uint64_t first, n, zero;
};

/* A run of logical rows inside a stored tensor that divides by itself: q, k and v of a fused matrix are three. */
struct sl_segment {
	uint64_t first, n;
	enum sl_dim dim;
};

#define SL_SEGMENTS_MAX 3

/* The segments of a row's `out` axis of `size`: one, but for dimensions that are several one after another. Returns how many. */
unsigned sl_segments(const struct sl_model *model, enum sl_part part, const struct sl_weight *row, uint64_t size,
		     struct sl_segment segments[SL_SEGMENTS_MAX]);

/* The share of `rank` of `tp` in a segment, relative to the segment's start: whole query heads; whole kv heads, replicated
 * in blocks when there are more ranks than heads (vLLM, linear.py: rank r takes head r / (tp / kv)); evenly otherwise. */
int sl_split(const struct sl_model *model, enum sl_part part, const struct sl_segment *segment, unsigned tp,
	     unsigned rank, struct sl_range *range, struct sl_error *err) SL_MUST_CHECK;

/* What a rank holds of a module's logical matrix: rows of each segment, columns, each with the zeros that pad it. */
struct sl_share {
	struct sl_range rows[SL_SEGMENTS_MAX], cols;
	unsigned n;    /* segments */
	bool is_first; /* this rank holds what the ranks do not share */
	bool padded;   /* to whole blocks of scales: the scales of elements that pad it are 1 */
	unsigned
		finer; /* blocks of scales become as many times as many along either axis, each with the same scale; 1: they stay */
};

/* The share of `rank` in a bound module, padded for `gpu` where its storage says so. */
int sl_share_of(const struct sl_model *model, const struct sl_engine *engine, const struct sl_layout *layout,
		enum sl_part part, const struct sl_weight *row, const struct sl_storage *storage, struct sl_matrix m,
		unsigned rank, enum sl_gpu gpu, struct sl_share *share, struct sl_error *err) SL_MUST_CHECK;

/* The units of a component in that share. */
struct sl_units sl_share_units(const struct sl_model *model, const struct sl_weight *row, const struct sl_bound *bound,
			       unsigned component, const struct sl_share *share);

/* A range of logical rows or columns in a component's own units; `unit` 0 is the whole axis of `stored` elements. A range that
 * would cut a unit is refused: "64 columns are no whole number of groups of 128". */
int sl_to_units(struct sl_range logical, uint64_t size, uint64_t unit, uint64_t stored, const char *what,
		struct sl_range *range, struct sl_error *err) SL_MUST_CHECK;

/* The share of embedding rows: padded with zero rows to a multiple of the engine's unit, then divided (vLLM,
 * vocab_parallel_embedding.py). Without a unit: divided when it divides and is the vocabulary, else whole. */
int sl_split_embedding(const struct sl_engine *engine, enum sl_dim dim, uint64_t rows, unsigned tp, unsigned rank,
		       struct sl_range *range, struct sl_error *err) SL_MUST_CHECK;

/* Layers [first, first + n) of a stage: what does not divide goes to the second-to-last stages backwards (vLLM,
 * distributed/utils.py, get_pp_indices). */
struct sl_range sl_stage_layers(uint64_t layers, unsigned stages, unsigned stage);

/* Ranks that share a row's matrix: 1 where an engine's configuration could not say that it is cut, for experts that are spread
 * whole, and for a vision tower whose heads do not divide (vLLM runs that with --mm-encoder-tp-mode data only). */
unsigned sl_row_tp(const struct sl_model *model, const struct sl_engine *engine, const struct sl_layout *layout,
		   enum sl_part part, const struct sl_weight *row);

/* Does each module divide as the architecture says? */
int sl_check_modules(const struct sl_model *model, const struct sl_engine *engine, const struct sl_layout *layout,
		     struct sl_error *err) SL_MUST_CHECK;

/* Are two rows parts of one module in an engine that fuses, in the same layers? */
bool sl_are_fused(const struct sl_weight *a, const struct sl_weight *b);

/* A row of an architecture as the engine has it. */
const struct sl_weight *sl_row_in(const struct sl_engine *engine, const struct sl_weight *row);

/* Is the shared expert one more of the routed ones, behind them? */
bool sl_fuses_shared(const struct sl_model *model, const struct sl_engine *engine, const struct sl_layout *layout,
		     enum sl_part part);

/* Has a row to do with routed experts? */
bool sl_is_expert(const struct sl_weight *row);

/* The experts of a rank: all of them, or its own when they are spread (vLLM, expert_map_manager.py): the first experts % tp
 * ranks have one more; the i-th is first + i, or rank + i * tp when they go round robin. */
struct sl_range sl_rank_experts(const struct sl_layout *layout, uint64_t experts, unsigned rank);
uint64_t sl_expert_at(const struct sl_layout *layout, struct sl_range experts, unsigned rank, uint64_t i);

#endif
