/*
 * series.c - see series.h.
 */
#include "slicer/series.h"

#include <string.h>

static void place(const struct sl_model *model, const struct sl_series *series, uint64_t item, struct sl_piece *piece)
{
	if (!sl_piece_reads(piece))
		return;
	const struct sl_lane *lane = &series->lanes[piece->shard];
	const struct sl_bound *bound = &lane->modules[series->first + item * series->step];
	const struct sl_tensor *tensor = &model->shards.tensors[bound->tensors[lane->component] - 1];
	piece->src += tensor->off;
	piece->shard = tensor->shard;
}

const struct sl_piece *sl_piece_at(const struct sl_model *model, const struct sl_piece *piece, uint64_t i,
				   struct sl_made_piece *made)
{
	const struct sl_series *series = piece->series;

	if (piece->op != SL_OP_SERIES)
		return piece;
	uint64_t item = i / series->n_pieces;
	const struct sl_piece *like = &series->pieces[i % series->n_pieces];
	const struct sl_parts parts = sl_piece_parts(like);
	made->piece = *like;
	made->piece.off += piece->off + item * series->len;
	place(model, series, item, &made->piece);
	if (parts.list == like)
		return &made->piece;
	memcpy(made->parts, parts.list, parts.n * sizeof(*parts.list));
	for (uint32_t p = 0; p < parts.n; p++)
		place(model, series, item, &made->parts[p]);
	made->compound = *like->compound;
	made->compound.parts = made->parts;
	made->piece.compound = &made->compound;
	return &made->piece;
}

/* A made piece that lives as long as the arena. */
static int keep(const struct sl_piece *piece, struct sl_arena *arena, struct sl_piece *kept)
{
	const struct sl_parts parts = sl_piece_parts(piece);
	struct sl_made_piece *made;

	*kept = *piece;
	if (parts.list == piece)
		return 0;
	made = sl_arena_alloc(arena, sizeof(*made));
	if (!made)
		return -1;
	memcpy(made->parts, parts.list, parts.n * sizeof(*parts.list));
	made->compound = *piece->compound;
	made->compound.parts = made->parts;
	kept->compound = &made->compound;
	return 0;
}

const struct sl_piece *sl_pieces_spread(const struct sl_model *model, const struct sl_piece *pieces, uint32_t n,
					struct sl_arena *arena, uint32_t *n_spread)
{
	struct sl_made_piece made;
	uint64_t count = 0, at = 0;

	for (uint32_t i = 0; i < n; i++)
		count += sl_piece_count(&pieces[i]);
	*n_spread = (uint32_t)count;
	if (count == n)
		return pieces;
	struct sl_piece *spread = count <= UINT32_MAX ? sl_arena_array(arena, count, sizeof(*spread)) : NULL;
	for (uint32_t i = 0; spread && i < n; i++) {
		for (uint64_t j = 0; j < sl_piece_count(&pieces[i]); j++, at++) {
			const struct sl_piece *piece = sl_piece_at(model, &pieces[i], j, &made);
			if (piece == &pieces[i])
				spread[at] = *piece;
			else if (keep(piece, arena, &spread[at]))
				return NULL;
		}
	}
	return spread;
}

/* The piece of an item that has its byte `at`. */
static uint32_t piece_with(const struct sl_series *series, uint64_t at)
{
	uint32_t i = series->n_pieces - 1;

	while (series->pieces[i].off > at)
		i--;
	return i;
}

int sl_series_read(const struct sl_model *model, const struct sl_piece *piece, uint64_t skip, uint64_t len,
		   unsigned char *dst, struct sl_error *err)
{
	const struct sl_series *series = piece->series;
	struct sl_made_piece made;

	while (len > 0) {
		uint64_t item = skip / series->len, at = skip % series->len;
		uint32_t i = piece_with(series, at);
		const struct sl_piece *one = sl_piece_at(model, piece, item * series->n_pieces + i, &made);
		uint64_t inside = at - series->pieces[i].off, now = one->len - inside;
		if (now > len)
			now = len;
		int ret = sl_piece_read(model, one, inside, now, dst, err);
		if (ret)
			return ret;
		skip += now;
		dst += now;
		len -= now;
	}
	return 0;
}
