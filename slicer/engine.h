/*
 * engine.h - the engines that read per-rank files, one row each: what they call things, how they cut, which files.
 */
#ifndef SLICER_ENGINE_H
#define SLICER_ENGINE_H

#include <stdbool.h>
#include <stddef.h>

struct sl_layout;

enum sl_engine_id { SL_VLLM, SL_VLLM_0_28, SL_VLLM_0_24, SL_VLLM_0_20, SL_HF, SL_N_ENGINES };

/* What an older release calls the modules that the family's file names as the newest one does. */
struct sl_renaming {
	const char *now;    /* anywhere in a module's name */
	const char *then;
	const char *stored; /* only where the checkpoint's name has this in it; NULL: everywhere */
};

/* To add an engine: an id above and a row in engine.c. */
struct sl_engine {
	const char *name;    /* of its directory */
	const char *title;   /* for people */
	const char *version; /* whose names these are */
	const char *usage;   /* one line that points the engine at a directory; %s is that directory */
	bool rank_dirs;      /* a directory per rank below the layout, each a model directory of its own */
	bool fused;          /* holds q, k, v and gate, up as one matrix each */
	bool native_dtype;   /* keeps each tensor's own dtype (else: all in the model's dtype) */
	bool kv_buffers;     /* holds the four attention scale buffers of each layer */
	bool stages;         /* knows pipeline stages */
	bool drafts;         /* next-n layers (MTP) stand beside the others, whole and as stored */
	bool older;          /* a release before that of the row above: known, but nothing to list for each model */
	bool drops_tied;     /* a tied model's stored head is not loaded */
	bool keeps_dropped;  /* holds what newer releases drop at load (scheme.h, SL_DROPPED) */
	const struct sl_renaming *renamed; /* the first that fits, until one without .now; NULL: nothing is */
	unsigned vocab_pad;  /* rows of embeddings are padded to a multiple of this; 0: divided exactly, or left whole */
};

extern const struct sl_engine sl_engines[SL_N_ENGINES];

const struct sl_engine *sl_engine_find(const char *name);

#endif
