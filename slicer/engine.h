/*
 * engine.h - the engines that read per-rank files, one row each: what they call things, how they cut, which files.
 */
#ifndef SLICER_ENGINE_H
#define SLICER_ENGINE_H

#include <stdbool.h>
#include <stddef.h>

struct sl_layout;

enum sl_engine_id { SL_VLLM, SL_HF, SL_N_ENGINES };

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
	unsigned vocab_pad;  /* rows of embeddings are padded to a multiple of this; 0: divided exactly, or left whole */
};

extern const struct sl_engine sl_engines[SL_N_ENGINES];

const struct sl_engine *sl_engine_find(const char *name);

#endif
