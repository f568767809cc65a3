/*
 * config.h - config.json: what it says about sizes, dtype and ties, wherever it says it.
 *
 * Text-model values come from `text_config` / `language_config` / `llm_config` when they are there, else from the top
 * level; a value of null counts as absent. Nothing here knows an architecture: names differ between families, so every
 * question lists the keys that may answer it, joined by '|', the first one that is there wins; a key in an object of the
 * part is "object.key".
 */
#ifndef SLICER_CONFIG_H
#define SLICER_CONFIG_H

#include "slicer/arena.h"
#include "slicer/error.h"
#include "slicer/json.h"
#include <stdbool.h>
#include <stdint.h>

#define SL_CONFIG_MAX (16u << 20) /* bytes of a config.json */

/* Which part of a multimodal model a value is about. */
enum sl_part { SL_TEXT, SL_VISION, SL_N_PARTS };

/* Names of the number of kv heads, which some configurations list layer by layer. */
#define SL_KV_HEADS_KEYS "num_key_value_heads|num_kv_heads|n_head_kv"

/* Sizes of one part of a model. 0: neither the configuration nor the family's defaults say. */
struct sl_dims {
	uint64_t layers, hidden, heads, kv_heads, head_dim, inter, vocab;
	uint64_t experts, moe_inter;				     /* routed experts of a layer, rows of one */
	uint64_t linear_k_heads, linear_v_heads, linear_k, linear_v; /* linear attention: heads and their sizes */
	uint64_t global_kv_heads, global_head_dim; /* of layers with global attention, where they are others */
	uint64_t index_heads, index_dim;	   /* heads that choose for sparse attention, and their size */
	uint64_t out_groups;			   /* groups of the output projection */
	uint64_t dense_layers;			   /* the first of them have no experts */
};

struct sl_config {
	char *text; /* NUL-terminated, in the model's arena */
	size_t len;
	struct sl_json json;
	uint32_t sections[SL_N_PARTS]; /* object token of each part; 0 when it is the top level or absent */
	const char *architecture;      /* architectures[0], else NULL */
	const char *model_type;	       /* of the top level, else NULL */
	struct sl_dims dims[SL_N_PARTS];
};

/* Read `dir`/config.json. Fills everything but dims, which sl_config_dims() does once the family is known. */
int sl_config_open(struct sl_config *config, int dirfd, struct sl_arena *arena, struct sl_error *err) SL_MUST_CHECK;
void sl_config_close(struct sl_config *config);

/* The value token of the first of `keys` that is there and not null: in the part's section, then (text only) at the top
 * level. 0 when none is. */
uint32_t sl_config_find(const struct sl_config *config, enum sl_part part, const char *keys);

/* -ENOENT, without setting `err`, when absent; -EINVAL when it is no plain unsigned number. */
int sl_config_u64(const struct sl_config *config, enum sl_part part, const char *keys, uint64_t *value,
		  struct sl_error *err) SL_MUST_CHECK;

/* `fallback` when absent or no boolean. */
bool sl_config_bool(const struct sl_config *config, enum sl_part part, const char *keys, bool fallback);

/* `fallback` when absent or no number. */
double sl_config_double(const struct sl_config *config, enum sl_part part, const char *keys, double fallback);

/* The object that says how rotary embeddings are scaled, 0 when there is none; and a number in it. */
uint32_t sl_config_rope(const struct sl_config *config);
double sl_config_rope_number(const struct sl_config *config, const char *key, double fallback);

/* Is that the kind of scaling ("llama3")? Without an object, or a kind in it, it is "default". */
bool sl_config_rope_is(const struct sl_config *config, const char *type);

/* The base of rotary embeddings, which stands in that object or beside it. */
double sl_config_rope_theta(const struct sl_config *config, double fallback);

/* Element `i` of a list, 0 when there is no such list or element. */
uint32_t sl_config_element(const struct sl_config *config, enum sl_part part, const char *keys, uint64_t i);

/* Does a list have this number in it? */
bool sl_config_lists(const struct sl_config *config, enum sl_part part, const char *keys, uint64_t number);

/* Does a string value equal `text`? False when absent. */
bool sl_config_is(const struct sl_config *config, enum sl_part part, const char *keys, const char *text);

/* Fill config->dims from the configuration; what it does not say, from `defaults` (the family's, may be NULL). A list of
 * kv-head counts per layer leaves kv_heads 0: then the tensors' shapes say it, layer by layer, as the list must. */
int sl_config_dims(struct sl_config *config, enum sl_part part, const struct sl_dims *defaults,
		   struct sl_error *err) SL_MUST_CHECK;

/* The dtype that the configuration states (vLLM's order: top level, text, vision, encoder; dtype or torch_dtype):
 * enum sl_dtype, or -1 when none does, or -EINVAL for a name that is no dtype. */
int sl_config_dtype(const struct sl_config *config, struct sl_error *err);

/* One change of a served config.json. */
struct sl_config_edit {
	uint32_t object;   /* token of an object to look, and add, in; 0: as `top` says */
	bool top;	   /* look, and add, at the top level only; else where the text model's values are looked for */
	const char *keys;  /* the first that is there is replaced; if none is, the first is added */
	const char *value; /* JSON text */
};

/* The text with those changes, everything else byte for byte: in the arena, NULL without memory. */
char *sl_config_edited(const struct sl_config *config, const struct sl_config_edit *edits, size_t n_edits,
		       struct sl_arena *arena, size_t *len);

#endif
