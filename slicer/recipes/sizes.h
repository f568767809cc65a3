/*
 * sizes.h - the sizes to which kernels have weights padded: arithmetic alone, without tensors.
 */
#ifndef SLICER_RECIPES_SIZES_H
#define SLICER_RECIPES_SIZES_H

#include <stdbool.h>
#include <stdint.h>

/* The least common multiple of two numbers that are not 0. */
uint64_t sl_lcm(uint64_t a, uint64_t b);

/* What Marlin's linear kernels have n x k padded to, `group` columns of k (0: all) sharing a scale: multiples of 64 x 128 or of
 * 128 x 64, whichever has fewer elements (vLLM 0.32, marlin_utils.py, marlin_padded_nk). */
void sl_marlin_padded_nk(uint64_t n, uint64_t k, uint64_t group, uint64_t padded[2]);

/* Experts with FP8 blocks whose intermediate size, divided among ranks, is not a whole number of blocks. */
struct sl_moe_shape {
	uint64_t inter, hidden, inter_rank; /* of the model; of a rank */
	unsigned tp;
	uint64_t block[2];
	const char *backend; /* -moe-backend; NULL or "auto": whichever the engine takes */
};

struct sl_moe_blocks {
	uint64_t inter_rank; /* that the rank has then */
	uint64_t block[2];
	uint64_t refine[2]; /* each scale is repeated so often; 0: it is not */
	bool padded;
	bool refused; /* it would be padded, which the sizes of the model do not allow */
};

/* vLLM 0.32, fused_moe/oracle/fp8.py, resolve_fp8_moe_weight_block_shape. */
struct sl_moe_blocks sl_moe_block_shape(const struct sl_moe_shape *shape);

#endif
