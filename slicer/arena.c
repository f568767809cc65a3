/*
 * arena.c - chunks in a list, the newest first; large requests get a chunk of their own behind it, so that the room left
 * in the newest is not lost.
 */
#include "slicer/arena.h"

#include <stdalign.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#include <sanitizer/asan_interface.h>
#endif
#endif
#ifndef ASAN_POISON_MEMORY_REGION
#define ASAN_POISON_MEMORY_REGION(at, size)   ((void)(at), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(at, size) ((void)(at), (void)(size))
#endif

enum { FIRST_CHUNK = 4096, LARGEST_CHUNK = 1 << 20, HUGE_PAGE = 2 << 20 };

struct sl_arena_chunk {
	struct sl_arena_chunk *next;
	size_t size, used; /* of `bytes` */
	alignas(max_align_t) unsigned char bytes[];
};

/* Allocations left before they fail; 0: they never do. Tests only. */
static unsigned fail_countdown;

void sl_arena_fail_after(unsigned n)
{
	fail_countdown = n;
}

static bool must_fail(void)
{
	if (fail_countdown > 1)
		fail_countdown--;
	else if (fail_countdown == 1)
		return true;
	return false;
}

void sl_arena_init(struct sl_arena *arena)
{
	*arena = (struct sl_arena){ 0 };
}

void sl_arena_release(struct sl_arena *arena)
{
	struct sl_arena_chunk *next;

	for (struct sl_arena_chunk *c = arena->chunks; c; c = next) {
		next = c->next;
		ASAN_UNPOISON_MEMORY_REGION(c->bytes, c->size);
		free(c);
	}
	sl_arena_init(arena);
}

/* The names and tensors of a large checkpoint are tens of megabytes: a page fault for each two of them, not each 4 KiB. */
static void use_huge_pages(void *at, size_t size)
{
	uintptr_t first = ((uintptr_t)at + HUGE_PAGE - 1) & ~(uintptr_t)(HUGE_PAGE - 1);
	uintptr_t end = ((uintptr_t)at + size) & ~(uintptr_t)(HUGE_PAGE - 1);

	madvise((void *)first, end - first, MADV_HUGEPAGE); /* the kernel may have none */
}

static struct sl_arena_chunk *new_chunk(size_t size)
{
	struct sl_arena_chunk *chunk;
	size_t total;

	if (__builtin_add_overflow(size, sizeof(*chunk), &total))
		return NULL;
	chunk = calloc(1, total);
	if (!chunk)
		return NULL;
	if (total >= 2 * HUGE_PAGE)
		use_huge_pages(chunk, total);
	chunk->size = size;
	ASAN_POISON_MEMORY_REGION(chunk->bytes, size);
	return chunk;
}

/* A chunk with room for `size` bytes, linked in. Sizes double, so that a small model stays small. */
static struct sl_arena_chunk *grow(struct sl_arena *arena, size_t size)
{
	struct sl_arena_chunk *newest = arena->chunks;
	size_t want = newest ? newest->size * 2 : FIRST_CHUNK;

	if (want > LARGEST_CHUNK)
		want = LARGEST_CHUNK;
	bool own = size > want / 4;
	struct sl_arena_chunk *chunk = new_chunk(own ? size : want);
	if (!chunk)
		return NULL;
	if (own && newest) {
		chunk->next = newest->next;
		newest->next = chunk;
	} else {
		chunk->next = newest;
		arena->chunks = chunk;
	}
	return chunk;
}

void *sl_arena_alloc(struct sl_arena *arena, size_t size)
{
	struct sl_arena_chunk *chunk = arena->chunks;
	size_t need = (size + sizeof(max_align_t) - 1) & ~(sizeof(max_align_t) - 1);

	if (need < size || must_fail())
		return NULL;
	if (!chunk || chunk->size - chunk->used < need)
		chunk = grow(arena, need);
	if (!chunk)
		return NULL;
	void *at = chunk->bytes + chunk->used;
	ASAN_UNPOISON_MEMORY_REGION(at, size);
	chunk->used += need;
	arena->bytes += need;
	return at;
}

void *sl_arena_array(struct sl_arena *arena, size_t n, size_t size)
{
	size_t total;

	return __builtin_mul_overflow(n, size, &total) ? NULL : sl_arena_alloc(arena, total);
}

char *sl_arena_strndup(struct sl_arena *arena, const char *text, size_t len)
{
	char *copy = sl_arena_alloc(arena, len + 1);

	if (copy)
		memcpy(copy, text, len);
	return copy;
}

char *sl_arena_strdup(struct sl_arena *arena, const char *text)
{
	return sl_arena_strndup(arena, text, strlen(text));
}

char *sl_arena_printf(struct sl_arena *arena, const char *fmt, ...)
{
	va_list ap, again;

	va_start(ap, fmt);
	va_copy(again, ap);
	int len = vsnprintf(NULL, 0, fmt, ap);
	char *text = len < 0 ? NULL : sl_arena_alloc(arena, (size_t)len + 1);
	if (text)
		vsnprintf(text, (size_t)len + 1, fmt, again);
	va_end(again);
	va_end(ap);
	return text;
}
