/*
 * fuzz_layout.c - any string as a layout name: what is taken is within bounds and prints as itself.
 */
#include "slicer/engine.h"
#include "slicer/layout.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct sl_layout *layout, const char *name)
{
	char again[SL_LAYOUT_NAME_MAX];

	if (layout->tp < 1 || layout->tp > SL_RANKS_MAX || layout->pp < 1 || layout->pp > SL_RANKS_MAX)
		abort();
	if (layout->dtype != -1 && layout->dtype != SL_F16 && layout->dtype != SL_BF16 && layout->dtype != SL_F32)
		abort();
	if (layout->experts > SL_EXPERTS_ROUND_ROBIN ||
	    strcmp(sl_layout_format(layout, &sl_engines[SL_VLLM], again), name) != 0)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *name = malloc(size + 1);
	struct sl_layout layout;

	if (!name)
		return 0;
	memcpy(name, data, size);
	name[size] = '\0';
	int ret = sl_layout_parse(&layout, &sl_engines[SL_VLLM], name);
	if (ret == 0)
		check(&layout, name);
	else if (ret != -ENOENT)
		abort();
	free(name);
	return 0;
}
