/*
 * arena.h - memory that lives and dies together: one arena per model and one per view.
 *
 * Chunks in a list, bump allocation, everything freed at once. What comes out is zeroed. Nothing is freed singly, and
 * nothing on the read path allocates from one. Under ASan the unused rest of a chunk is poisoned.
 *
 *      arena -> [chunk | used ...... free] -> [chunk | used ............] -> NULL
 */
#ifndef SLICER_ARENA_H
#define SLICER_ARENA_H

#include "slicer/error.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sl_arena {
	struct sl_arena_chunk *chunks;
	size_t bytes; /* handed out, for the figures of `rankfs status` */
};

void sl_arena_init(struct sl_arena *arena);
void sl_arena_release(struct sl_arena *arena);

/* `size` zeroed bytes aligned for any type; NULL when there is no memory. A size of 0 gives a valid pointer. */
void *sl_arena_alloc(struct sl_arena *arena, size_t size) __attribute__((malloc));

/* `n` zeroed elements; NULL when n * size wraps or there is no memory. */
void *sl_arena_array(struct sl_arena *arena, size_t n, size_t size);

char *sl_arena_strdup(struct sl_arena *arena, const char *text);
char *sl_arena_strndup(struct sl_arena *arena, const char *text, size_t len);
char *sl_arena_printf(struct sl_arena *arena, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* `size` malloc'ed bytes belong to the arena from now on; false when there is no memory: they stay the caller's. */
bool sl_arena_adopt(struct sl_arena *arena, void *bytes, size_t size) SL_MUST_CHECK;

/* The tables of a large checkpoint are tens of megabytes: a page fault for each two of them, not for each 4 KiB, where the kernel
 * has huge pages. For memory from elsewhere; an arena's own needs no such word. */
void sl_use_huge_pages(void *at, size_t size);

/* For tests: the n-th allocation from now on (1 is the next one) and all later ones fail; 0 switches that off. */
void sl_arena_fail_after(unsigned n);

#endif
