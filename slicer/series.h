/*
 * series.h - the pieces of a stack of experts, said once.
 *
 * Experts are stored one by one and held by engines as one tensor. Each of them is made of the same pieces, of tensors of
 * its own; which these are the model's binding knows already. So a view keeps the pieces of one expert and where the
 * binding has the others, and 16 ranks of 500,000 tensors need no more memory than one of 500:
 *
 *      item 0                    item 1                    …
 *      [ w1 rows | w3 rows ]     [ w1 rows | w3 rows ]         w1, w3: of modules[first], modules[first + step], …
 */
#ifndef SLICER_SERIES_H
#define SLICER_SERIES_H

#include "slicer/arena.h"
#include "slicer/model.h"
#include "slicer/piece.h"

#define SL_SERIES_PARTS 8 /* of a compound in a series, at most */
#define SL_SERIES_LANES 4

/* One of the tensors that an item is made of: a component of a row's modules, one an expert. */
struct sl_lane {
	const struct sl_bound *modules;
	unsigned component;
};

struct sl_series {
	uint64_t len;	      /* bytes of an item */
	uint32_t n;	      /* items */
	uint32_t first, step; /* item i is expert first + i * step */
	/* Of any item: .off counts from its start; of those that read, .shard is a lane, and .src counts from the start of
	 * that lane's tensor. */
	uint32_t n_pieces;
	const struct sl_piece *pieces;
	const struct sl_lane *lanes;
};

/* How many pieces a piece stands for: 1, but for a series. */
static inline uint64_t sl_piece_count(const struct sl_piece *piece)
{
	return piece->op == SL_OP_SERIES ? (uint64_t)piece->series->n * piece->series->n_pieces : 1;
}

/* A piece of a series as it is by itself. */
struct sl_made_piece {
	struct sl_piece piece, parts[SL_SERIES_PARTS];
	struct sl_compound compound;
};

/* The i-th of them: `piece` itself, or made in `made`. Never a series. */
const struct sl_piece *sl_piece_at(const struct sl_model *model, const struct sl_piece *piece, uint64_t i,
				   struct sl_made_piece *made);

/* `n` pieces with all series spread out, *n_spread of them: the array itself when there is none, else one in the arena; NULL
 * without memory. */
const struct sl_piece *sl_pieces_spread(const struct sl_model *model, const struct sl_piece *pieces, uint32_t n,
					struct sl_arena *arena, uint32_t *n_spread);

/* Output bytes [skip, skip + len) of a series. */
int sl_series_read(const struct sl_model *model, const struct sl_piece *piece, uint64_t skip, uint64_t len,
		   unsigned char *dst, struct sl_error *err) SL_MUST_CHECK;

#endif
