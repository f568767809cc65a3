/*
 * repack.c - which rectangle of a packed source a block needs.
 */
#include "slicer/transforms/repack.h"

#include "slicer/transform.h"
#include "slicer/transforms/repack_avx2.h"

/* Bytes of a row of the output that a column of q takes, in bits. */
static uint64_t column_bits(const struct sl_args *args)
{
	return sl_repack_depth(args) * args->p[SL_REPACK_BITS];
}

static void granule(const struct sl_args *args, uint64_t *rows, uint64_t *bytes)
{
	*rows = 1;
	*bytes = column_bits(args) * sl_repack_width(args) / 8;
}

/* Rows and columns of q, or of a half of it. */
struct range {
	uint64_t first, end;
};

/* The columns of one input among those of both. */
static struct range of_input(const struct sl_args *args, unsigned input, struct range n)
{
	uint64_t half = args->p[SL_REPACK_HALF], low = input * half, high = half ? low + half : UINT64_MAX;

	n.first = (n.first < low ? low : n.first > high ? high : n.first) - low;
	n.end = (n.end < low ? low : n.end > high ? high : n.end) - low;
	return n;
}

/* What of a packed source holds these rows and columns of q. */
static struct sl_rect packed(uint64_t bits, enum sl_packing from, struct range k, struct range n)
{
	uint64_t per_word = 32 / bits;

	if (from == SL_FROM_WORDS)
		return (struct sl_rect){ k.first / per_word, (k.end + per_word - 1) / per_word - k.first / per_word,
					 n.first * 4, (n.end - n.first) * 4 };
	if (from == SL_FROM_ROWS)
		return (struct sl_rect){ n.first, n.end - n.first, k.first * bits / 8,
					 (k.end * bits + 7) / 8 - k.first * bits / 8 };
	return (struct sl_rect){ k.first, k.end - k.first, n.first / per_word * 4,
				 (n.end + per_word - 1) / per_word * 4 - n.first / per_word * 4 };
}

static void need(const struct sl_args *args, unsigned input, const struct sl_rect *out, struct sl_rect *in)
{
	uint64_t depth = sl_repack_depth(args), width = column_bits(args);
	struct range k = { out->row * depth, (out->row + out->n_rows) * depth },
		     n = { out->col * 8 / width, ((out->col + out->n_cols) * 8 + width - 1) / width };

	n = of_input(args, input, n);
	if (n.first == n.end)
		return;
	if (args->p[SL_REPACK_TURNED])
		*in = packed(args->p[SL_REPACK_BITS], (enum sl_packing)args->p[SL_REPACK_FROM], n, k);
	else
		*in = packed(args->p[SL_REPACK_BITS], (enum sl_packing)args->p[SL_REPACK_FROM], k, n);
}

static void run(const struct sl_args *args, const struct sl_block *block)
{
	if (sl_repack_avx2(args, block))
		return;
	for (uint64_t i = 0; i < sl_repack_units(args, block); i++)
		sl_repack_unit(args, block, i);
}

const struct sl_transform_row sl_transform_repack = {
	"repack", granule, need, NULL, NULL, run, sl_repack_units, sl_repack_unit, NULL,
};
