/*
 * piece.h - where the bytes of an output come from.
 *
 * A lossless slice of a row-major tensor along any axis is one strided run of source bytes: `count` runs of `run` bytes,
 * `stride` apart. A row slice has count 1, a column slice one run a row. Fused, replicated, stacked and permuted tensors
 * are several pieces, one after another. So an output file is a sorted array of pieces over its bytes,
 *
 *      file   |header|  q rows  | k rows | v rows |   o columns   | zeros |
 *      pieces [ data ][  copy   ][ copy  ][ copy  ][ copy, strided ][ zero ]
 *
 * and reading never knows what a tensor means. What is done with the runs is the piece's op, a row of sl_ops.
 */
#ifndef SLICER_PIECE_H
#define SLICER_PIECE_H

#include "slicer/dtype.h"
#include "slicer/error.h"
#include <stdbool.h>
#include <stdint.h>

struct sl_model;
struct sl_transform;
struct sl_series;

enum sl_op {
	SL_OP_COPY,	 /* the runs, one after another */
	SL_OP_ZERO,	 /* zero bytes; no source */
	SL_OP_DATA,	 /* bytes in memory: headers, constants, configuration */
	SL_OP_CONVERT,	 /* the runs, each element converted from one dtype to another (convert.h) */
	SL_OP_TRANSPOSE, /* the runs as a matrix of count rows, written column by column, converted on the way */
	SL_OP_SERIES,	 /* the same pieces again and again, each time of other tensors (series.h) */
	/* Ops of several pieces (or of one that is no run of theirs): compounds, all behind those that are not. */
	SL_OP_COLUMNS, /* parts side by side: a row of the output is one run of each */
	SL_OP_SCALE,  /* part 0 times part 1, which has one F32 element per block of part 0's elements, as dtype `to` */
	SL_OP_REPEAT, /* part 0 enlarged: each element of it is a block of equal elements of dtype `to` */
	SL_OP_REGROUP, /* part 0, F4 with a scale of part 1 for each group, as F8_E4M3 with one for each block (regroup.c) */
	SL_OP_REGROUPED, /* part 0, scales of groups, as those of blocks */
	SL_OP_TRANSFORM, /* computed by a transform (transform.h); the parts are what its inputs read */
	SL_N_OPS
};

struct sl_piece {
	uint64_t off; /* first byte of the output */
	uint64_t len; /* bytes of the output: never 0 */
	union {
		uint64_t src;			    /* first source byte in the shard */
		const unsigned char *data;	    /* SL_OP_DATA: len bytes */
		const struct sl_compound *compound; /* ops of several pieces */
		const struct sl_series *series;	    /* SL_OP_SERIES */
	};
	uint64_t run; /* source bytes of one run: a whole number of elements; of a compound, bytes of an output row */
	uint64_t stride; /* source bytes from the start of one run to that of the next */
	uint32_t count;	 /* runs */
	uint32_t shard;
	uint8_t op;	  /* enum sl_op */
	uint8_t from, to; /* enum sl_dtype of CONVERT and TRANSPOSE; equal when nothing is converted */
};

/* What an op of several pieces works on. Its parts are never compounds themselves. */
struct sl_compound {
	uint32_t n;
	uint32_t block[2]; /* SCALE, REGROUP: rows and columns that share a scale; REPEAT: of an element's block */
	uint32_t first[2]; /* REPEAT: rows and columns of part 0's first block that are left out */
	const struct sl_piece *parts; /* as many runs each, COLUMNS: .off is where a part's columns begin in a row */
	const struct sl_transform *transform; /* TRANSFORM */
};

/* The pieces that one piece is made of: a compound's parts, else it alone. */
struct sl_parts {
	const struct sl_piece *list;
	uint32_t n;
};

static inline struct sl_parts sl_piece_parts(const struct sl_piece *piece)
{
	if (piece->op >= SL_OP_COLUMNS)
		return (struct sl_parts){ piece->compound->parts, piece->compound->n };
	return (struct sl_parts){ piece, 1 };
}

/* Does it read a shard itself: has it .src and .shard, and no parts? */
static inline bool sl_piece_reads(const struct sl_piece *piece)
{
	return piece->op == SL_OP_COPY || piece->op == SL_OP_CONVERT || piece->op == SL_OP_TRANSPOSE;
}

/* Read output bytes [skip, skip + len) of one piece into `dst`. Thread-safe; needs no memory from outside. */
int sl_piece_read(const struct sl_model *model, const struct sl_piece *piece, uint64_t skip, size_t len, void *dst,
		  struct sl_error *err) SL_MUST_CHECK;

/* Read `n_rows` runs of `n` output bytes, `pitch` apart, the first at `skip`, one after another into `dst`. */
int sl_piece_read_rows(const struct sl_model *model, const struct sl_piece *piece, uint64_t skip, uint64_t pitch,
		       uint64_t n_rows, uint64_t n, unsigned char *dst, struct sl_error *err) SL_MUST_CHECK;

/* Elements [first, first + n) of REGROUP and REGROUPED (regroup.c). */
int sl_regroup_values(const struct sl_model *model, const struct sl_piece *p, uint64_t first, uint64_t n,
		      unsigned char *dst, struct sl_error *err) SL_MUST_CHECK;
int sl_regroup_scales(const struct sl_model *model, const struct sl_piece *p, uint64_t first, uint64_t n,
		      unsigned char *dst, struct sl_error *err) SL_MUST_CHECK;

/* The name of an op, for `rankfs plan`. */
const char *sl_op_name(enum sl_op op);

#endif
