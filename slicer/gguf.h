/*
 * gguf.h - writing the key-value pairs of a GGUF file (ggml, docs/gguf.md, version 3), between the files that know what to say.
 */
#ifndef SLICER_GGUF_H
#define SLICER_GGUF_H

#include "slicer/error.h"
#include "slicer/json.h"
#include "slicer/model.h"
#include "slicer/text.h"
#include <stdint.h>

enum sl_gguf_type {
	SL_GGUF_U32 = 4,
	SL_GGUF_I32 = 5,
	SL_GGUF_F32 = 6,
	SL_GGUF_BOOL = 7,
	SL_GGUF_STRING = 8,
	SL_GGUF_ARRAY = 9
};

/* Pairs so far. */
struct sl_gguf {
	struct sl_text text;
	uint64_t n;
};

/* `size` bytes of a number, the lowest first; a string with its length in front. */
void sl_gguf_put(struct sl_text *text, uint64_t value, unsigned size);
void sl_gguf_put_string(struct sl_text *text, const char *string, size_t len);

void sl_gguf_u32(struct sl_gguf *gguf, const char *key, uint64_t value);
void sl_gguf_f32(struct sl_gguf *gguf, const char *key, float value);
void sl_gguf_bool(struct sl_gguf *gguf, const char *key, bool value);
void sl_gguf_string(struct sl_gguf *gguf, const char *key, const char *value, size_t len);

/* Begin an array of `n` elements, which follow in gguf->text. */
void sl_gguf_array(struct sl_gguf *gguf, const char *key, enum sl_gguf_type type, uint64_t n);

/* A file of the source: its text, malloc'ed; or parsed as JSON. Sentences begin with its name. */
struct sl_gguf_document {
	char *text;
	size_t len;
	struct sl_json json;
};

int sl_gguf_read_text(const struct sl_model *model, const char *name, char **text, size_t *len,
		      struct sl_error *err) SL_MUST_CHECK;
int sl_gguf_read(const struct sl_model *model, const char *name, struct sl_gguf_document *doc,
		 struct sl_error *err) SL_MUST_CHECK;
void sl_gguf_release(struct sl_gguf_document *doc);

/* Is the source's tokenizer one that llama.cpp has a name for? Cheap: the text is searched, not parsed. */
int sl_gguf_check_tokenizer(const struct sl_model *model, struct sl_error *err) SL_MUST_CHECK;

/* Add which tokens are special, and the chat template: advice, of which there may be none (gguf_special.c). */
void sl_gguf_add_special(struct sl_gguf *gguf, const struct sl_model *model, const struct sl_json *tokenizer);

/* Add tokenizer.ggml.*, from tokenizer.json, tokenizer_config.json and config.json. */
int sl_gguf_add_tokenizer(struct sl_gguf *gguf, const struct sl_model *model, struct sl_error *err) SL_MUST_CHECK;

#endif
