/*
 * fuzz_gguf.c - any bytes as a tokenizer: tokenizer.json, and after a byte 0xFF tokenizer_config.json. What is accepted is pairs
 * as GGUF has them, each key once, that end where the text ends.
 */
#include "slicer/gguf.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { KEYS_MAX = 64 };

static char dir[] = "/tmp/fuzz-gguf-XXXXXX";
static struct sl_model model;

static void clean_up(void)
{
	unlinkat(model.shards.dirfd, "tokenizer.json", 0);
	unlinkat(model.shards.dirfd, "tokenizer_config.json", 0);
	unlinkat(model.shards.dirfd, "config.json", 0);
	rmdir(dir);
}

static void put(const char *name, const void *bytes, size_t len)
{
	int fd = openat(model.shards.dirfd, name, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	if (fd < 0 || write(fd, bytes, len) != (ssize_t)len)
		abort();
	close(fd);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	static const char config[] = "{\"architectures\":[\"LlamaForCausalLM\"],\"hidden_size\":8,\"vocab_size\":32,"
				     "\"num_attention_heads\":2,\"num_hidden_layers\":1,\"eos_token_id\":2}";
	struct sl_error err = SL_ERROR_INIT;

	(void)argc, (void)argv;
	if (!mkdtemp(dir))
		abort();
	model.shards.dirfd = open(dir, O_RDONLY | O_DIRECTORY);
	put("config.json", config, strlen(config));
	sl_arena_init(&model.arena);
	if (sl_config_open(&model.config, model.shards.dirfd, &model.arena, &err))
		abort();
	model.config.dims[SL_TEXT].vocab = 32;
	atexit(clean_up);
	return 0;
}

/* ---- the pairs, read again ---- */

struct reader {
	const unsigned char *at, *end;
};

static uint64_t number(struct reader *r, unsigned size)
{
	uint64_t value = 0;

	if ((size_t)(r->end - r->at) < size)
		abort();
	for (unsigned i = size; i-- > 0;)
		value = value << 8 | r->at[i];
	r->at += size;
	return value;
}

static const unsigned char *string(struct reader *r, uint64_t *len)
{
	const unsigned char *text;

	*len = number(r, 8);
	if ((uint64_t)(r->end - r->at) < *len)
		abort();
	text = r->at;
	r->at += *len;
	return text;
}

static void value(struct reader *r, uint64_t type)
{
	uint64_t len, inner;

	switch (type) {
	case SL_GGUF_U32:
	case SL_GGUF_I32:
		number(r, 4);
		return;
	case SL_GGUF_BOOL:
		if (number(r, 1) > 1)
			abort();
		return;
	case SL_GGUF_STRING:
		string(r, &len);
		return;
	case SL_GGUF_ARRAY:
		inner = number(r, 4);
		for (uint64_t n = number(r, 8); n > 0; n--)
			value(r, inner);
		return;
	default:
		abort();
	}
}

static void check_pairs(const struct sl_gguf *gguf)
{
	struct reader r = { (const unsigned char *)gguf->text.bytes,
			    (const unsigned char *)gguf->text.bytes + gguf->text.len };
	const unsigned char *keys[KEYS_MAX];
	uint64_t lens[KEYS_MAX];

	if (gguf->n > KEYS_MAX)
		abort();
	for (uint64_t i = 0; i < gguf->n; i++) {
		keys[i] = string(&r, &lens[i]);
		for (uint64_t k = 0; k < i; k++) {
			if (lens[k] == lens[i] && memcmp(keys[k], keys[i], lens[i]) == 0)
				abort();
		}
		value(&r, number(&r, 4));
	}
	if (r.at != r.end)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const uint8_t *second = size ? memchr(data, 0xFF, size) : NULL;
	size_t first = second ? (size_t)(second - data) : size;
	struct sl_gguf gguf = { SL_TEXT_INIT, 0 };
	struct sl_error err = SL_ERROR_INIT;

	put("tokenizer.json", data, first);
	if (second)
		put("tokenizer_config.json", second + 1, size - first - 1);
	else
		unlinkat(model.shards.dirfd, "tokenizer_config.json", 0);
	int ret = sl_gguf_add_tokenizer(&gguf, &model, &err);
	if (ret == 0)
		check_pairs(&gguf);
	else if (ret != -err.errnum || !err.text[0] || strchr(err.text, '\n'))
		abort();
	sl_text_release(&gguf.text);
	return 0;
}
