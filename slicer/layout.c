/*
 * layout.c - parsing and printing layout names. A name is accepted only if printing what it means gives it back: so there
 * is one spelling, and the parser need not be strict by itself.
 */
#include "slicer/layout.h"

#include "slicer/engine.h"
#include "slicer/scheme.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* clang-format off */
/* To add a token without a number: a row, in the order in which names have them; for a new field, that and field_of(). */
static const struct {
	const char *token;
	enum field { EXPERTS, DTYPE, PADDED, ONLINE, KERNELS, TURNED, GPU } field;
	int value;
} words[] = {
	{ "ep",         EXPERTS, SL_EXPERTS_WHOLE },
	{ "eprr",       EXPERTS, SL_EXPERTS_ROUND_ROBIN },
	{ "bf16",       DTYPE,   SL_BF16 },
	{ "f16",        DTYPE,   SL_F16 },
	{ "f32",        DTYPE,   SL_F32 },
	{ "fp8",        DTYPE,   SL_F8_E4M3 },
	{ "padded",     PADDED,  1 },
	{ "fp8",        ONLINE,  SL_ONLINE_TENSOR },
	{ "fp8c",       ONLINE,  SL_ONLINE_CHANNEL },
	{ "fp8b",       ONLINE,  SL_ONLINE_BLOCK },
	{ "marlin",     KERNELS, SL_KERNELS_MARLIN },
	{ "cutlass",    KERNELS, SL_KERNELS_CUTLASS },
	{ "triton",     KERNELS, SL_KERNELS_TRITON },
	{ "flashinfer", KERNELS, SL_KERNELS_FLASHINFER },
	{ "trtllm",     KERNELS, SL_KERNELS_TRTLLM },
	{ "kn",         TURNED,  1 },
	{ "sm80",       GPU,     1 + SL_SM80 },
	{ "sm89",       GPU,     1 + SL_SM89 },
	{ "sm90",       GPU,     1 + SL_SM90 },
	{ "sm100",      GPU,     1 + SL_SM100 },
	{ "gfx942",     GPU,     1 + SL_GFX942 },
};
/* clang-format on */

static int field_of(const struct sl_layout *layout, enum field field)
{
	switch (field) {
	case EXPERTS:
		return (int)layout->experts;
	case DTYPE:
		return layout->dtype;
	case PADDED:
		return (int)layout->padded;
	case ONLINE:
		return (int)layout->online;
	case KERNELS:
		return (int)layout->kernels;
	case TURNED:
		return (int)layout->turned;
	case GPU:
		return (int)layout->gpu;
	}
	return 0;
}

static void set_field(struct sl_layout *layout, enum field field, int value)
{
	switch (field) {
	case EXPERTS:
		layout->experts = (enum sl_experts)value;
		break;
	case DTYPE:
		layout->dtype = value;
		break;
	case PADDED:
		layout->padded = (unsigned)value;
		break;
	case ONLINE:
		layout->online = (enum sl_online)value;
		break;
	case KERNELS:
		layout->kernels = (enum sl_kernels)value;
		break;
	case TURNED:
		layout->turned = (unsigned)value;
		break;
	case GPU:
		layout->gpu = (unsigned)value;
		break;
	}
}

/* "tp8": the digits after `prefix`, at most 4 of them. */
static bool number(const char *token, size_t len, const char *prefix, unsigned *value)
{
	size_t n = strlen(prefix);

	if (len <= n || len > n + 4 || memcmp(token, prefix, n) != 0)
		return false;
	*value = 0;
	for (size_t i = n; i < len; i++) {
		if (token[i] < '0' || token[i] > '9')
			return false;
		*value = *value * 10 + (unsigned)(token[i] - '0');
	}
	return *value >= 1 && *value <= SL_RANKS_MAX;
}

/* Words about kernels are for engines that have something to say about them, and say how experts are padded too; FP8 is for
 * those that have experts in it. */
static bool has_word(const struct sl_engine *engine, size_t i)
{
	if (words[i].field >= ONLINE)
		return engine->picks_kernels;
	if (words[i].field == PADDED)
		return engine->finer_blocks && !engine->picks_kernels;
	return words[i].field != DTYPE || words[i].value != SL_F8_E4M3 || engine->fp8_experts;
}

static bool word(struct sl_layout *layout, const struct sl_engine *engine, const char *token, size_t len)
{
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		if (strlen(words[i].token) != len || memcmp(words[i].token, token, len) != 0)
			continue;
		if (!has_word(engine, i))
			continue;
		set_field(layout, words[i].field, words[i].value);
		return true;
	}
	return false;
}

int sl_layout_parse(struct sl_layout *layout, const struct sl_engine *engine, const char *name)
{
	char again[SL_LAYOUT_NAME_MAX];

	*layout = (struct sl_layout){ .tp = 0, .pp = 1, .dtype = -1 };
	for (const char *at = name; *at && engine->ranks;) {
		size_t len = strcspn(at, "-");
		if (!number(at, len, engine->ranks, &layout->tp) && !number(at, len, "pp", &layout->pp) &&
		    !word(layout, engine, at, len))
			return -ENOENT;
		at += len + (at[len] == '-');
	}
	if (layout->tp == 0 || strcmp(sl_layout_format(layout, engine, again), name) != 0)
		return -ENOENT;
	return 0;
}

const char *sl_layout_format(const struct sl_layout *layout, const struct sl_engine *engine, char *name)
{
	int len = snprintf(name, SL_LAYOUT_NAME_MAX, "%s%u", engine->ranks, layout->tp);

	if (layout->pp > 1)
		len += snprintf(name + len, (size_t)(SL_LAYOUT_NAME_MAX - len), "-pp%u", layout->pp);
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		if (field_of(layout, words[i].field) == words[i].value)
			len += snprintf(name + len, (size_t)(SL_LAYOUT_NAME_MAX - len), "-%s", words[i].token);
	}
	return name;
}

const char *sl_layout_path(const struct sl_layout *layout, const struct sl_engine *engine, char *path)
{
	char name[SL_LAYOUT_NAME_MAX];

	if (engine->ranks)
		snprintf(path, SL_LAYOUT_PATH_MAX, "%s/%s", engine->name, sl_layout_format(layout, engine, name));
	else
		snprintf(path, SL_LAYOUT_PATH_MAX, "%s", engine->name);
	return path;
}

bool sl_layout_equal(const struct sl_layout *a, const struct sl_layout *b)
{
	return a->tp == b->tp && a->pp == b->pp && a->experts == b->experts && a->dtype == b->dtype &&
	       a->padded == b->padded && a->online == b->online && a->kernels == b->kernels && a->turned == b->turned &&
	       a->gpu == b->gpu;
}
