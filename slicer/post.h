/*
 * post.h - what an engine does to a module once it has loaded it, as recipes: from the module's loaded tensors to those that it
 * holds from then on (vLLM: process_weights_after_loading).
 *
 *      loaded: weight, weight_scale, …  ->  recipe  ->  tensors of the plan, made of transforms and of pieces as they were
 *
 * A recipe is a function in slicer/recipes/ and a line of SL_RECIPES. It knows nothing of families or files: tests give it the
 * inputs of an engine's own functions, and compare with what those made of them.
 */
#ifndef SLICER_POST_H
#define SLICER_POST_H

#include "slicer/plan.h"
#include "slicer/transform.h"

#define SL_WIDTHS_MAX 64

/* A tensor of a module as the engine has loaded it. */
struct sl_loaded {
	const char *name; /* within the module: "weight_scale", "w13_weight" */
	const uint64_t *shape;
	enum sl_dtype dtype;
	unsigned n_dims;
	uint64_t len; /* bytes */
	const struct sl_piece *pieces;
	uint32_t n_pieces;
	/* Of what an earlier recipe has made (process.h): */
	const struct sl_done *done;
	bool turned;
	const char *elsewhere; /* the module beside this one that it belongs to; NULL: this one */
};

/* What a recipe has to know besides; what does not concern it is 0. */
struct sl_post_facts {
	uint64_t widths[SL_WIDTHS_MAX]; /* rows of each matrix that is fused */
	unsigned n_widths;
	unsigned bits;		/* of a packed element */
	uint64_t group;		/* columns that share a scale; 0: all of them */
	uint64_t block[2];	/* rows, columns that share a scale; 0: they do not */
	enum sl_dtype dtype;	/* the model's: BF16 or F16 */
	uint64_t inter, hidden; /* experts: of a rank */
	uint64_t heads, nope, v,
		rank; /* MLA: heads of this rank, dimensions of q and k without rotation, of v, of the latent */
	bool act8;    /* 8-bit activations */
	bool cpu;     /* a processor's arithmetic: it divides where a GPU multiplies with the inverse */
	bool gated;   /* experts have gate and up */
	bool symmetric, fixed; /* INT8 activations: without a zero point; with scales of their own */
	const char *backend;   /* which of several kernels; NULL: the usual one */
	uint64_t align;	       /* to what a kernel wants sizes rounded up */
	uint64_t rows;	       /* of the weight that scales belong to */
	uint64_t refine[2];    /* parts of a block in rows and in columns that get the block's scale each */
	unsigned ranks;	       /* all of them, where a recipe makes what each has */
};

struct sl_post {
	struct sl_plan *plan; /* gets the tensors; its arena holds all that is made */
	const char *prefix;   /* of their names: "model.layers.0.self_attn.qkv_proj." */
	const struct sl_loaded *loaded;
	unsigned n_loaded;
	const char *module; /* its whole name, for messages of what is read later; NULL: none */
	bool strict;	    /* sl_args.strict of what is made */
	bool *used;	    /* per loaded tensor: a recipe has asked for it; NULL: nobody wants to know */
	struct sl_post_facts facts;
};

/* ---- what recipes use; all give 0 or -errno with a sentence in post->plan->err ---- */

/* The loaded tensor of that name; NULL when the module has none. */
const struct sl_loaded *sl_post_find(const struct sl_post *post, const char *name);

/* The same for one that the recipe cannot do without, of `n_dims` dimensions. */
int sl_post_need(const struct sl_post *post, const char *name, unsigned n_dims,
		 const struct sl_loaded **loaded) SL_MUST_CHECK;

/* Begin a tensor of the plan, and end it with its shape: sl_post_shape(post, SL_SHAPE(n, k)). */
int sl_post_begin(const struct sl_post *post, const char *name, enum sl_dtype dtype) SL_MUST_CHECK;
#define SL_SHAPE(...) \
	(const uint64_t[]){ __VA_ARGS__ }, (unsigned)(sizeof((const uint64_t[]){ __VA_ARGS__ }) / sizeof(uint64_t))
int sl_post_shape(const struct sl_post *post, const uint64_t *shape, unsigned n_dims) SL_MUST_CHECK;

/* The tensor that was ended last is held as a view whose last two axes are swapped: what is served is its memory. */
void sl_post_turned(const struct sl_post *post);

/* A transform without inputs yet. */
struct sl_transform sl_post_transform(enum sl_transform_id id, uint64_t batch, uint64_t rows, uint64_t row_bytes);

/* Give it its next input: `batch` matrices of rows x row_bytes, one after another from byte `off` of a loaded tensor on. What a
 * transform asks for beyond them is zeros. Matrices that lie otherwise: set .in[i].stride and .pitch after that. */
void sl_post_input(struct sl_transform *t, const struct sl_loaded *loaded, uint64_t off, uint64_t rows,
		   uint64_t row_bytes);

/* The same from something that a transform makes: sl_post_make(). */
void sl_post_input_stream(struct sl_transform *t, const struct sl_stream *stream, uint64_t off, uint64_t rows,
			  uint64_t row_bytes);

/* Add what it makes to the begun tensor. */
int sl_post_add(const struct sl_post *post, const struct sl_transform *t) SL_MUST_CHECK;

/* What it makes is for another transform. */
int sl_post_make(const struct sl_post *post, const struct sl_transform *t, struct sl_stream *made) SL_MUST_CHECK;

/* Begin, add, shape: a tensor that one transform makes. */
int sl_post_one(const struct sl_post *post, const char *name, enum sl_dtype dtype, const struct sl_transform *t,
		const uint64_t *shape, unsigned n_dims) SL_MUST_CHECK;

/* Both work on the same facts. */
int sl_post_share_facts(const struct sl_post *post, struct sl_transform *a, struct sl_transform *b) SL_MUST_CHECK;

/* A loaded tensor as it is, under another name, dtype of the same size, or shape of as many elements. */
int sl_post_keep_as(const struct sl_post *post, const struct sl_loaded *loaded, const char *name, enum sl_dtype dtype,
		    const uint64_t *shape, unsigned n_dims) SL_MUST_CHECK;
int sl_post_keep(const struct sl_post *post, const struct sl_loaded *loaded) SL_MUST_CHECK;

/* The smallest multiple of `unit` that is not below n. */
static inline uint64_t sl_up(uint64_t n, uint64_t unit)
{
	return (n + unit - 1) / unit * unit;
}

/* ---- recipes ---- */

struct sl_recipe {
	const char *name;
	const char *says;	/* what is done, for people: manifests, `plan` */
	const char *arithmetic; /* and how numbers are rounded on the way; after tests/kernel/data and its KERNEL.md */
	int (*make)(const struct sl_post *post);
};

/* clang-format off */
/* Roundings are to nearest, ties to even. A GPU's: a tensor divided by a number is multiplied with the number's inverse. */
#define SL_MOVED       "none: elements move"
#define SL_LARGEST     "none: the largest number"
#define SL_REQUANT     "code times its scale in F32, both of F16, to F16; times the F32 inverse of the largest scale; to E4M3"
#define SL_DOUBLED     "scales times 2 in F32"
#define SL_BY_INVERSE  "F32: the largest divided by 448; values times the inverse of that; to E4M3"
#define SL_DIVIDED     "F32: the largest divided by 448; values divided by that; to E4M3"
#define SL_EAGER       "F32: the largest times 1/448; values times the exact inverse of that; to E4M3: as with TORCH_COMPILE_DISABLE=1; compiled, that inverse is approximate, and a code in hundreds that lies midway is its neighbour"
#define SL_POWERS      "code times its scale in F32; the largest times 1/448, up to a power of two; values divided by that; to E4M3"
#define SL_ONE_PRODUCT "code times its scale in F32, to the model's dtype"
#define SL_INT8_ZEROS  "F32, range times 1/255; sums of INT8 in INT32"
#define SL_GLOBALS     "F32 products and quotients, each rounded once"
#define SL_TO_DTYPE    "scales to the model's dtype"
#define SL_BIASED      "scales to the model's dtype, times a power of two in it"
#define SL_S0E5M3      "scales times powers of two in F16, to S0E5M3; global scale times one in F32"
#define SL_E8M0        "none in BF16; in F16 exponents are limited to 103..142"
#define SL_FLOORED     "none, but that block scales are at least 1e-10"
#define SL_WIDENED     "biases to F32, exact"

/* To add a recipe: a line here, and its function sl_post_NAME in a file of slicer/recipes/. Names are those of KERNEL.md's cases. */
#define SL_RECIPES(X)                                                                                                    \
	X(fp8_tensor, "FP8 codes of fused matrices to the largest of their scales", SL_REQUANT) \
	X(fp8_tensor_modelopt, "FP8 codes of fused matrices to the largest of their scales, where these differ", SL_REQUANT) \
	X(fp8_channel, "FP8 codes as they are, one scale a row", SL_MOVED) \
	X(fp8_cutlass_pad, "FP8 codes in rows and columns rounded up to 16", SL_MOVED) \
	X(fp8_fnuz, "FP8 codes of AMD's kind, with scales twice as large", SL_DOUBLED) \
	X(fp8_fnuz_tensor, "FP8 codes of AMD's kind, to twice the largest of their scales", SL_REQUANT) \
	X(online_tensor, "to FP8, one scale for all", SL_BY_INVERSE) \
	X(online_channel, "to FP8, one scale a row", SL_DIVIDED) \
	X(online_block, "to FP8, one scale a block", SL_EAGER) \
	X(online_moe_tensor, "to FP8, one scale an expert", SL_BY_INVERSE) \
	X(online_moe_channel, "to FP8, one scale a row", SL_DIVIDED) \
	X(online_moe_block, "to FP8, one scale a block", SL_EAGER) \
	X(online_mxfp8, "to FP8, one power of two for 32 values", SL_EAGER) \
	X(block_ue8m0, "FP8 blocks to scales that are powers of two", SL_POWERS) \
	X(mla, "W_UK_T and W_UV, in the model's dtype", SL_ONE_PRODUCT) \
	X(int8_w8a8, "INT8 as it is, one scale a row", SL_INT8_ZEROS) \
	X(nvfp4_moe_global_ct, "experts' global scales, which are stored as divisors", SL_GLOBALS) \
	X(nvfp4_moe_global_modelopt, "experts' global scales", SL_GLOBALS) \
	X(nvfp4_moe_alphas, "experts' global scales times those of their activations", SL_GLOBALS) \
	X(moe_w31, "experts' halves swapped: up before gate", SL_MOVED) \
	X(awq_to_standard, "AWQ's packing to GPTQ's", SL_MOVED) \
	X(marlin_repack_gptq, "GPTQ's packing to Marlin's tiles", SL_MOVED) \
	X(marlin_repack_awq, "AWQ's packing to Marlin's tiles", SL_MOVED) \
	X(marlin_padded_nk, "sizes to which Marlin pads linear layers", SL_MOVED) \
	X(marlin_gptq, "GPTQ for Marlin: tiles, scales and bias in their order, padded", SL_MOVED) \
	X(marlin_ct_wna16, "packed integers for Marlin: tiles, scales and zero points in their order, padded", SL_MOVED) \
	X(marlin_awq, "AWQ for Marlin: tiles, scales and zero points in their order, padded", SL_MOVED) \
	X(marlin_fp8, "FP8 for Marlin: tiles, scales in the model's dtype with the exponent's offset, padded", SL_BIASED) \
	X(marlin_mxfp8, "MXFP8 for Marlin: tiles, scales in their order, padded", SL_MOVED) \
	X(marlin_nvfp4, "NVFP4 for Marlin: tiles, scales without sign, a global scale that matches, padded", SL_S0E5M3) \
	X(marlin_mxfp4, "MXFP4 for Marlin: tiles, scales in their order, padded", SL_E8M0) \
	X(marlin_mxfp4_scale, "MXFP4's scales for Marlin", SL_E8M0) \
	X(marlin_moe_wna16, "packed integers of experts for Marlin, the intermediate size padded", SL_MOVED) \
	X(marlin_moe_gptq, "GPTQ of experts for Marlin, the intermediate size padded", SL_MOVED) \
	X(marlin_moe_awq, "AWQ of experts for Marlin, the intermediate size padded", SL_MOVED) \
	X(marlin_moe_fp8, "FP8 of experts for Marlin, the intermediate size padded", SL_BIASED) \
	X(marlin_moe_mxfp8, "MXFP8 of experts for Marlin, the intermediate size padded", SL_MOVED) \
	X(marlin_moe_nvfp4, "NVFP4 of experts for Marlin, the intermediate size padded", SL_S0E5M3) \
	X(marlin_moe_mxfp4, "MXFP4 of experts for Marlin", SL_E8M0) \
	X(humming_fp8, "FP8 for Humming: tiles, scales in the model's dtype, padded", SL_TO_DTYPE) \
	X(humming_mxfp8, "MXFP8 for Humming: tiles, scales in their order, padded", SL_MOVED) \
	X(humming_nvfp4, "NVFP4 for Humming: tiles, scales in their order, padded, one scale for all", SL_GLOBALS) \
	X(humming_moe_wna16, "packed integers of experts for Humming: tiles, scales in their order, padded; in sign and magnitude where none is -8", SL_MOVED) \
	X(humming_moe_mxfp8, "MXFP8 of experts for Humming: tiles, scales in their order, padded", SL_MOVED) \
	X(moe_block_shape, "blocks of FP8 experts that a rank's share cuts: finer ones, or padding", SL_MOVED) \
	X(moe_fp8_tensor, "FP8 codes of an expert's two halves to the larger of their scales", SL_REQUANT) \
	X(moe_fp8_input, "one scale for the activations of all experts: the largest", SL_LARGEST) \
	X(moe_fp8_fi_cutlass, "FP8 experts for FlashInfer: up before gate, padded, block scales of at least 1e-10", SL_FLOORED) \
	X(moe_scale_refine, "scales of smaller blocks, for every rank", SL_MOVED) \
	X(moe_tp_padded, "experts in whole blocks for every rank, the last ranks' padded", SL_MOVED) \
	X(nvfp4_global_ct, "NVFP4: one scale for fused matrices, the inverse of the largest divisor", SL_GLOBALS) \
	X(nvfp4_global_modelopt, "NVFP4: one scale for fused matrices, the largest", SL_GLOBALS) \
	X(swizzle_nvfp4, "scales in tiles of 128 rows and 4 columns", SL_MOVED) \
	X(swizzle_mxfp8, "scales in tiles of 128 rows and 4 columns, flat", SL_MOVED) \
	X(mxfp8_cutedsl, "MXFP8 for CuTe-DSL: scales in tiles of 128 rows and 4 columns, flat", SL_MOVED) \
	X(swizzle_mxfp4, "scales in tiles of 128 rows and 4 columns, flat", SL_MOVED) \
	X(nvfp4_pad, "4-bit weights padded to a kernel's multiples", SL_MOVED) \
	X(nvfp4_moe, "NVFP4 experts for CUTLASS: scales in tiles, FlashInfer's with up before gate", SL_MOVED) \
	X(nvfp4_moe_cutedsl, "NVFP4 experts for CuTe-DSL: padded, 64 rows of up and of gate in turn, scales in tiles", SL_MOVED) \
	X(gpt_oss_fi_cutlass, "MXFP4 experts for FlashInfer CUTLASS: up before gate, scales in tiles", SL_MOVED) \
	X(trtllm_bf16, "BF16 experts for TensorRT-LLM: rows shuffled, in blocks of 128 bytes", SL_MOVED) \
	X(trtllm_fp8, "FP8 experts for TensorRT-LLM: rows shuffled, blocks of 128 bytes with block scales", SL_FLOORED) \
	X(trtllm_nvfp4, "NVFP4 experts for TensorRT-LLM: padded, rows shuffled, scales in tiles", SL_MOVED) \
	X(trtllm_mxfp8, "MXFP8 experts for TensorRT-LLM: rows shuffled, scales in tiles", SL_MOVED) \
	X(trtllm_gpt_oss, "MXFP4 experts for TensorRT-LLM: rows shuffled, scales in tiles, F32 biases", SL_WIDENED) \
	X(deepgemm_sf, "exponents of scales, four to a word, column by column: DeepGEMM on Blackwell", SL_MOVED) \
	X(e8m0_to_f32, "powers of two as F32 scales", SL_MOVED)
/* clang-format on */

#define SL_RECIPE_FUNCTION(id, text, arithmetic) int sl_post_##id(const struct sl_post *post);
SL_RECIPES(SL_RECIPE_FUNCTION)

const struct sl_recipe *sl_recipe_find(const char *name);

#endif
