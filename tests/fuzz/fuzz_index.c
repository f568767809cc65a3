/*
 * fuzz_index.c - any bytes as an index: what is accepted is sorted, unique, and names no file outside the directory.
 */
#include "slicer/index.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A second opinion on the paths. */
static void check_path(const char *path)
{
	if (!path[0] || path[0] == '/' || strchr(path, '\\') || strcmp(path, "..") == 0 ||
	    strncmp(path, "../", 3) == 0 || strstr(path, "/../"))
		abort();
	size_t len = strlen(path);
	if (len > 2 && strcmp(path + len - 3, "/..") == 0)
		abort();
}

static void check_index(const struct sl_index *index)
{
	if (index->n == 0 || index->n_files == 0)
		abort();
	for (uint32_t i = 0; i < index->n_files; i++) {
		check_path(index->files[i]);
		if (i > 0 && strcmp(index->files[i - 1], index->files[i]) >= 0)
			abort();
	}
	for (uint32_t i = 0; i < index->n; i++) {
		const struct sl_index_entry *entry = &index->entries[i];
		if (entry->shard >= index->n_files || entry->file != index->files[entry->shard])
			abort();
		if (i > 0 && strcmp(entry[-1].tensor, entry->tensor) >= 0)
			abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct sl_error err = SL_ERROR_INIT;
	struct sl_note *notes = NULL;
	struct sl_arena arena;
	struct sl_index index;

	sl_arena_init(&arena);
	int ret = sl_index_parse(&index, (const char *)data, size, &arena, &notes, &err);
	if (ret == 0)
		check_index(&index);
	else if (ret != -err.errnum || !err.text[0])
		abort();
	sl_arena_release(&arena);
	return 0;
}
