/*
 * engine.h - the engines that read per-rank files, one row each: what they call things, how they cut, which files.
 *
 * Most rows are flags: the walk over the architecture (view.c), the container (parts.c) and what stands beside the weights
 * (served.c) do what they say. An engine with rules of its own points at functions instead, in a file engine_NAME.c.
 */
#ifndef SLICER_ENGINE_H
#define SLICER_ENGINE_H

#include "slicer/dtype.h"
#include "slicer/error.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sl_choice;
struct sl_container;
struct sl_layout;
struct sl_model;
struct sl_output;
struct sl_plan;
struct sl_range;
struct sl_text;

enum sl_engine_id {
	SL_VLLM,
	SL_VLLM_0_28,
	SL_VLLM_0_24,
	SL_VLLM_0_20,
	SL_SGLANG,
	SL_HF,
	SL_HF_LAYERS,
	SL_DEEPSEEK,
	SL_AIRLLM,
	SL_DCP,
	SL_SERVERLESSLLM,
	SL_GPT_OSS,
	SL_META,
	SL_GGUF,
	SL_KERNEL,
	SL_N_ENGINES
};

/* What an older release calls the modules that the family's file names as the newest one does. */
struct sl_renaming {
	const char *now; /* anywhere in a module's name */
	const char *then;
	const char *stored; /* only where the checkpoint's name has this in it; NULL: everywhere */
};

/* An architecture that a release does not have, or holds under names that nobody has compared. */
struct sl_lack {
	const char *architecture, *why;
};

/* To add an engine: an id above and a row in engine.c. */
struct sl_engine {
	const char *name;    /* of its directory; "hf/layers" lies inside that of "hf" */
	const char *title;   /* for people */
	const char *version; /* whose names these are */
	const char *holds;   /* which models, for people; NULL: all */
	const char *usage;   /* one line that points the engine at a directory; %s is that directory */
	const char *ranks;   /* in a layout's name, "tp"; NULL: no layouts, one directory for all */
	const char *layouts; /* some layouts that work by their names, for people */
	bool rank_dirs;	     /* a directory per rank below the layout, each a model directory of its own */
	bool rank_configs;   /* with a config.json that fits the rank's share */
	bool fused;	     /* holds q, k, v and gate, up as one matrix each */
	bool native_dtype;   /* keeps each tensor's own dtype (else: all in the model's dtype) */
	bool kv_buffers;     /* holds the four attention scale buffers of each layer */
	bool weights_only;   /* without the scales of the KV cache, stored or not */
	bool stages;	     /* knows pipeline stages */
	bool as_stored;	     /* takes stored tensors: no dtype to ask for, experts as its own rules say */
	bool fp8_experts;    /* has layouts "-fp8", in which F4 experts are FP8 */
	bool undivided;	     /* weight files are not split by size */
	bool drafts;	     /* next-n layers (MTP) stand beside the others, whole and as stored */
	bool older;	     /* a release before that of the row above: known, but nothing to list for each model */
	bool finer_blocks;   /* experts' blocks of scales that a rank would cut become finer */
	bool drops_tied;     /* a tied model's stored head is not loaded */
	bool keeps_dropped;  /* holds what newer releases drop at load (scheme.h, SL_DROPPED) */
	const struct sl_renaming *renamed; /* the first that fits, until one without .now; NULL: nothing is */
	const struct sl_lack *lacks;	   /* until one without .architecture; NULL: none */
	uint64_t part_bytes;		   /* the size at which they are, unless the options say another; 0: 512 MiB */
	bool source_files; /* a weight file that would hold just what a source file does is that file, byte for byte */
	const struct sl_choice *choices; /* how loaded modules are processed (process.h); NULL: they stay as they are */
	bool picks_kernels;		 /* a layout's name says with which kernels, for which GPU */
	bool sglang;			 /* holds what rows of architectures say that SGLang has instead (arch.h) */
	bool turns;			 /* matrices that it holds as views with swapped axes are stored so */
	unsigned vocab_pad; /* rows of embeddings are padded to a multiple of this; 0: divided exactly, or left whole */

	/* Can the engine hold this model, with that many ranks? 0 or -EINVAL. */
	int (*check)(const struct sl_model *model, const struct sl_engine *engine, const struct sl_layout *layout,
		     struct sl_error *err);
	/* The dtype of a model that no layout asks another of, and the layers of a pipeline stage. NULL: as vLLM does. */
	enum sl_dtype (*dtype)(const struct sl_model *model);
	struct sl_range (*stage_layers)(uint64_t layers, unsigned stages, unsigned stage);
	/* Add the rank's tensors to a plan. NULL: those of the architecture, walked. */
	int (*plan)(struct sl_plan *plan);
	/* How tensors become files, and what the i-th of n is called (in the view's arena; NULL without memory). */
	const struct sl_container *container;
	char *(*file_name)(const struct sl_plan *plan, uint32_t i, uint32_t n);
	/* Append the member "__metadata__" of a header to the text, without a comma. NULL: it has none. */
	void (*metadata)(const struct sl_plan *plan, struct sl_output *const *tensors, uint32_t n,
			 struct sl_text *text);
	/* Add what stands beside the weights and is computed. NULL: nothing. */
	int (*beside)(struct sl_plan *plan);
	/* Of the files that sl_view_passes(): does this engine want it? NULL: all of them. */
	bool (*passes)(const char *name);
};

extern const struct sl_engine sl_engines[SL_N_ENGINES];

const struct sl_engine *sl_engine_find(const char *name);

/* 0, or -EINVAL with those that there are when the name is "ENGINE@RELEASE" of a release without a row. */
int sl_engine_check_release(const char *name, struct sl_error *err) SL_MUST_CHECK;

#endif
