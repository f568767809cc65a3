/*
 * fuzz_config.c - any bytes as a config.json: sizes that are taken are within bounds, those of a quantisation too, and an
 * edited text is JSON again that says what the edits asked for.
 */
#include "slicer/arch.h"
#include "slicer/config.h"
#include "slicer/scheme.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct sl_config_edit edits[] = {
	{ .keys = "head_dim", .value = "77" },
	{ .keys = "tie_word_embeddings", .value = "false" },
	{ .top = true, .keys = "dtype|torch_dtype", .value = "\"float16\"" },
};

static char dir[] = "/tmp/fuzz-config-XXXXXX";
static int dirfd_;

static void clean_up(void)
{
	unlinkat(dirfd_, "config.json", 0);
	rmdir(dir);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc, (void)argv;
	if (!mkdtemp(dir))
		abort();
	dirfd_ = open(dir, O_RDONLY | O_DIRECTORY);
	atexit(clean_up);
	return 0;
}

static void put(const void *bytes, size_t len)
{
	int fd = openat(dirfd_, "config.json", O_WRONLY | O_CREAT | O_TRUNC, 0600);

	if (fd < 0 || write(fd, bytes, len) != (ssize_t)len)
		abort();
	close(fd);
}

static void check_error(int ret, const struct sl_error *err)
{
	if (ret != -err->errnum || !err->text[0] || strchr(err->text, '\n'))
		abort();
}

/* What the family makes of it. */
static void check_dims(struct sl_config *config, enum sl_format format)
{
	struct sl_error err = SL_ERROR_INIT;
	const struct sl_arch *arch;
	int ret = sl_arch_find(&arch, config, format, &err);

	for (int part = 0; !ret && part < SL_N_PARTS; part++)
		ret = sl_config_dims(config, (enum sl_part)part, arch->defaults[part], &err);
	if (!ret && arch->prepare)
		ret = arch->prepare(config, &err);
	if (ret) {
		check_error(ret, &err);
		return;
	}
	const struct sl_dims *d = &config->dims[SL_TEXT];
	const uint64_t sizes[] = { d->layers, d->hidden, d->heads, d->kv_heads, d->head_dim, d->inter / 4, d->vocab };
	for (size_t i = 0; i < SL_COUNT(sizes); i++) {
		if (sizes[i] > UINT64_C(1) << 31)
			abort();
	}
}

static void check_quant(const struct sl_config *config)
{
	struct sl_error err = SL_ERROR_INIT;
	struct sl_quant quant;
	int ret = sl_quant_find(&quant, config, dirfd_, &err);

	if (ret) {
		check_error(ret, &err);
		return;
	}
	if ((quant.bits && quant.bits != 4 && quant.bits != 8) || !quant.block[0] != !quant.block[1])
		abort();
	if (quant.block[0] > UINT32_MAX || quant.block[1] > UINT32_MAX || quant.group > UINT32_MAX)
		abort();
	sl_quant_ignores(&quant, config, "model.layers.0.mlp.down_proj");
}

static void check_dtype(const struct sl_config *config)
{
	struct sl_error err = SL_ERROR_INIT;
	int dtype = sl_config_dtype(config, &err);

	if (err.errnum)
		check_error(dtype, &err);
	else if (dtype < -1 || dtype >= SL_N_DTYPES)
		abort();
}

static void check_edited(const struct sl_config *config, struct sl_arena *arena)
{
	struct sl_error err = SL_ERROR_INIT;
	struct sl_config again;
	uint64_t head_dim;
	size_t len;
	const char *text = sl_config_edited(config, edits, SL_COUNT(edits), arena, &len);

	if (!text || strlen(text) != len)
		abort();
	put(text, len);
	if (len > SL_CONFIG_MAX)
		return;
	if (sl_config_open(&again, dirfd_, arena, &err))
		abort();
	if (sl_config_u64(&again, SL_TEXT, "head_dim", &head_dim, &err) || head_dim != 77)
		abort();
	if (sl_config_bool(&again, SL_TEXT, "tie_word_embeddings", true) || sl_config_dtype(&again, &err) != SL_F16)
		abort();
	sl_config_close(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct sl_error err = SL_ERROR_INIT;
	struct sl_config config;
	struct sl_arena arena;

	sl_arena_init(&arena);
	put(data, size);
	int ret = sl_config_open(&config, dirfd_, &arena, &err);
	if (ret) {
		check_error(ret, &err);
	} else {
		check_dims(&config, SL_FORMAT_HF);
		check_dims(&config, SL_FORMAT_MISTRAL);
		check_dtype(&config);
		check_quant(&config);
		check_edited(&config, &arena);
		sl_config_close(&config);
	}
	sl_arena_release(&arena);
	return 0;
}
