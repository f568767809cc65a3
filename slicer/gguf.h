/*
 * gguf.h - writing the key-value pairs of a GGUF file (ggml, docs/gguf.md, version 3), between the files that know what to say.
 */
#ifndef SLICER_GGUF_H
#define SLICER_GGUF_H

#include "slicer/error.h"
#include "slicer/model.h"
#include "slicer/text.h"
#include <stdint.h>

enum sl_gguf_type { SL_GGUF_U32 = 4, SL_GGUF_I32 = 5, SL_GGUF_F32 = 6, SL_GGUF_STRING = 8, SL_GGUF_ARRAY = 9 };

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
void sl_gguf_string(struct sl_gguf *gguf, const char *key, const char *value, size_t len);

/* Begin an array of `n` elements, which follow in gguf->text. */
void sl_gguf_array(struct sl_gguf *gguf, const char *key, enum sl_gguf_type type, uint64_t n);

/* Is the source's tokenizer one that llama.cpp has a name for? Cheap: the text is searched, not parsed. */
int sl_gguf_check_tokenizer(const struct sl_model *model, struct sl_error *err) SL_MUST_CHECK;

/* Add tokenizer.ggml.*, from tokenizer.json, tokenizer_config.json and config.json. */
int sl_gguf_add_tokenizer(struct sl_gguf *gguf, const struct sl_model *model, struct sl_error *err) SL_MUST_CHECK;

#endif
