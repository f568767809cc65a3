/*
 * layout.h - a layout name: how many ranks, and in what form. Tokens joined by '-', in this order:
 *
 *      tp8 [-ppN] [-ep | -eprr] [-bf16 | -f16 | -f32 | -fp8] [-padded]
 *
 * and of an engine whose files are for its kernels, after those
 *
 *      [-fp8 | -fp8c | -fp8b] [-marlin | -cutlass | -triton | -flashinfer | -trtllm] [-kn] [-sm80 | -sm89 | -sm90 | -sm100 | -gfx942]
 *
 * Each engine has its own word for the number of ranks ("tp8", "mp8"); one without such a word has no layouts.
 * "fp8" among the first is a word of those alone that have experts in it, "padded" of those that may pad them.
 */
#ifndef SLICER_LAYOUT_H
#define SLICER_LAYOUT_H

#include "slicer/dtype.h"
#include <stdbool.h>
#include <stddef.h>

#define SL_RANKS_MAX	   1024u
#define SL_LAYOUT_NAME_MAX 64
#define SL_LAYOUT_PATH_MAX 128

struct sl_engine;

enum sl_experts { SL_EXPERTS_SLICED, SL_EXPERTS_WHOLE, SL_EXPERTS_ROUND_ROBIN };

/* Plain weights quantised on the way: FP8 with one scale a matrix, one a row, one a block. */
enum sl_online { SL_ONLINE_NONE, SL_ONLINE_TENSOR, SL_ONLINE_CHANNEL, SL_ONLINE_BLOCK };

/* Whose kernels, where an engine has several for the same weights; AUTO: those that it takes by itself. In the order in which they
 * are tried where what AUTO takes is not known. */
enum sl_kernels {
	SL_KERNELS_AUTO,
	SL_KERNELS_TRITON,
	SL_KERNELS_CUTLASS,
	SL_KERNELS_MARLIN,
	SL_KERNELS_FLASHINFER,
	SL_KERNELS_TRTLLM,
	SL_N_KERNELS
};

struct sl_layout {
	unsigned tp; /* ranks that share each layer, 1..SL_RANKS_MAX */
	unsigned pp; /* stages that share the layers; 1: none */
	enum sl_experts experts;
	int dtype; /* enum sl_dtype that --dtype asks for, or -1: the engine's own choice */
	unsigned
		padded; /* experts in blocks that a rank would cut are padded to whole ones, not stored in finer ones */
	enum sl_online online;
	enum sl_kernels kernels;
	unsigned turned; /* matrices that kernels see through a view with swapped axes are stored so */
	unsigned gpu;	 /* 1 + enum sl_gpu; 0: not said */
};

/* All of a model, in the engine's own choice of dtype. */
#define SL_LAYOUT_WHOLE ((struct sl_layout){ .tp = 1, .pp = 1, .experts = SL_EXPERTS_SLICED, .dtype = -1 })

/* Parse a whole name, as `engine` spells it. 0, or -ENOENT when it is no layout name at all (unknown token, wrong order, leading zero, a
 * number out of range): there is nothing more to say about it, so no sl_error. A name has one spelling only:
 * "tp2-pp1" is no name. */
int sl_layout_parse(struct sl_layout *layout, const struct sl_engine *engine, const char *name)
	__attribute__((warn_unused_result));

/* The name of a layout, into `name` of SL_LAYOUT_NAME_MAX bytes; returns it. The inverse of sl_layout_parse(). */
const char *sl_layout_format(const struct sl_layout *layout, const struct sl_engine *engine, char *name);

/* Where the files of a layout lie, into `path` of SL_LAYOUT_PATH_MAX bytes: "vllm/tp8", or "airllm" for an engine without
 * layouts. Returns it. */
const char *sl_layout_path(const struct sl_layout *layout, const struct sl_engine *engine, char *path);

bool sl_layout_equal(const struct sl_layout *a, const struct sl_layout *b);

#endif
