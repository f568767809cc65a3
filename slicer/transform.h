/*
 * transform.h - tensors that are computed from others: what engines do to weights after they have loaded them.
 *
 * A transform is a row of sl_transforms; one that is planned has arguments and inputs, each input a stream of pieces that makes
 * a batch of matrices. It is read like any other piece: only blocks that are asked for are computed, each from the rectangles of
 * its inputs that it needs. What has to be known of a whole input before any byte can be made (a largest value, a table) is a
 * fact: learned when it is first needed, and kept.
 *
 * The arithmetic is in slicer/transforms/NAME.h, which says where it comes from.
 */
#ifndef SLICER_TRANSFORM_H
#define SLICER_TRANSFORM_H

#include "slicer/backend.h"
#include "slicer/piece.h"

/* Those of which one thread of a GPU makes a unit, and those of which several share one. */
/* clang-format off */
#define SL_TRANSFORMS_ALONE(X) \
	X(MAP, map) /* each byte through a table of 256, one table for each range of rows */ \
	X(ROWS, rows) /* rows in another order, whole or in blocks of bytes */ \
	X(SCALARS, scalars) /* a few numbers from a few others */ \
	X(DEQUANT, dequant) /* FP8 and scales to floats */ \
	X(SUMS, sums) /* of rows */ \
	X(TRANSPOSE, transpose) /* a matrix turned */ \
	X(REPACK, repack) /* values of 4 or 8 bits from one packing to another */ \
	X(MARLIN_SCALES, marlin_scales) /* scales in the order and numbers of Marlin's kernels */ \
	X(SWIZZLE, swizzle) /* scales in tiles of 128 rows and 4 columns */ \
	X(ELEMENT, element) /* a function of one element */ \
	X(EXPONENTS, exponents) /* of F32 scales, four to a word, column by column */

#define SL_TRANSFORMS_SHARED(X) \
	X(QUANT, quant) /* floats to FP8, each granule with a scale of its own */ \
	X(QUANT_SCALES, quant_scales) /* those scales */
/* clang-format on */

#define SL_TRANSFORMS(X) SL_TRANSFORMS_ALONE(X) SL_TRANSFORMS_SHARED(X)

#define SL_TRANSFORM_ID(ID, name) SL_T_##ID,
enum sl_transform_id { SL_TRANSFORMS(SL_TRANSFORM_ID) SL_N_TRANSFORMS };

/* Matrices in bytes that pieces make, one after another: row r of member m begins at off + m * stride + r * pitch. So half of a
 * stack of matrices, their upper rows or their left columns, is a stream too. */
struct sl_stream {
	const struct sl_piece *pieces; /* sorted, without gaps */
	uint32_t n;
	uint64_t off; /* in the pieces' own numbering */
	uint64_t stride, pitch;
};

struct sl_facts {
	unsigned state;	 /* atomic; 0: unknown, 1: being learned, 2: known */
	uint64_t serial; /* of all that have been learned */
	unsigned char bytes[];
};

struct sl_transform {
	enum sl_transform_id id;
	const char *module; /* that it is made for, for messages; NULL: none */
	struct sl_args args;
	struct sl_stream in[SL_INPUTS_MAX];
	unsigned n_inputs;
	struct sl_facts *facts; /* NULL: there are none; else the only thing about it that changes */
};

/* A kind of transform. */
struct sl_transform_row {
	const char *name;
	/* The smallest block that can be made alone, rows and bytes of them. */
	void (*granule)(const struct sl_args *args, uint64_t *rows, uint64_t *bytes);
	/* What of an input a block of the output needs: may reach beyond what is there, empty when only facts need it. */
	void (*need)(const struct sl_args *args, unsigned input, const struct sl_rect *out, struct sl_rect *in);
	/* Bytes of facts, and how to learn them; NULL: none. */
	uint64_t (*facts_len)(const struct sl_args *args);
	int (*learn)(const struct sl_model *model, const struct sl_transform *t, unsigned char *facts,
		     struct sl_error *err);
	/* Make a block on the processor: of any size, another backend may have wanted it larger. */
	void (*run)(const struct sl_args *args, const struct sl_block *block);
	/* The same by the definition, unit by unit, as a GPU does it: how many units a block has, and the i-th. */
	uint64_t (*units)(const struct sl_args *args, const struct sl_block *block);
	void (*unit)(const struct sl_args *args, const struct sl_block *block, uint64_t i);
	/* Before a block is made with strict arguments: is there anything in its inputs that has no certain result, as a NaN or a
	 * scale that is not positive? 0, or -EINVAL with a sentence. NULL: nothing can be wrong. */
	int (*check)(const struct sl_args *args, const struct sl_block *block, struct sl_error *err);
};

/* -EINVAL unless the `n` F32 numbers are finite and positive. */
int sl_transform_scales(const unsigned char *scales, uint64_t n, struct sl_error *err) SL_MUST_CHECK;

/* The same for one that only goes with its weights: it may be what the engine holds where a checkpoint has none (scheme.c). */
int sl_transform_scale(float scale, struct sl_error *err) SL_MUST_CHECK;

extern const struct sl_transform_row *const sl_transforms[SL_N_TRANSFORMS];

/* Bytes of input and of output that are held at once: a granule that needs more is refused when it is planned. */
#define SL_BLOCK_IN_MAX	 (512u << 10)
#define SL_BLOCK_OUT_MAX (128u << 10)

/* Bytes of one member of the output, and of all. */
static inline uint64_t sl_transform_member(const struct sl_args *args)
{
	return args->rows * args->row_bytes;
}

static inline uint64_t sl_transform_len(const struct sl_args *args)
{
	return args->batch * sl_transform_member(args);
}

/* Can it be computed at all: do sizes multiply, is a granule small enough, are inputs as long as they say? */
int sl_transform_check(const struct sl_transform *t, struct sl_error *err) SL_MUST_CHECK;

/* Output bytes [skip, skip + len). Thread-safe; takes no memory. */
int sl_transform_read(const struct sl_model *model, const struct sl_transform *t, uint64_t skip, uint64_t len,
		      unsigned char *dst, struct sl_error *err) SL_MUST_CHECK;

/* A rectangle of one member of an input, rows one after another at dst; zeros where nothing is. */
int sl_transform_input(const struct sl_model *model, const struct sl_transform *t, unsigned input, uint64_t member,
		       const struct sl_rect *rect, unsigned char *dst, struct sl_error *err) SL_MUST_CHECK;

#endif
