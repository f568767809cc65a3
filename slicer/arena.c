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

enum { FIRST_CHUNK = 4096, LARGEST_CHUNK = 8 << 20, HUGE_PAGE = 2 << 20 };

struct sl_arena_chunk {
	struct sl_arena_chunk *next;
	size_t mapped; /* 0: from calloc */
	void *adopted;
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
		free(c->adopted);
		if (c->mapped)
			munmap(c, c->mapped);
		else
			free(c);
	}
	sl_arena_init(arena);
}

void sl_use_huge_pages(void *at, size_t size)
{
	uintptr_t first = ((uintptr_t)at + HUGE_PAGE - 1) & ~(uintptr_t)(HUGE_PAGE - 1);
	uintptr_t end = ((uintptr_t)at + size) & ~(uintptr_t)(HUGE_PAGE - 1);

	if (first < end)
		madvise((void *)first, end - first, MADV_HUGEPAGE); /* the kernel may have none */
}

/* `size` bytes, a multiple of a huge page, in huge pages. What is never touched costs nothing. */
static void *map_huge(size_t size)
{
	unsigned char *at = mmap(NULL, size + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED)
		return NULL;
	size_t before = -(uintptr_t)at & (HUGE_PAGE - 1);
	if (before)
		munmap(at, before);
	munmap(at + before + size, HUGE_PAGE - before);
	sl_use_huge_pages(at + before, size);
	return at + before;
}

static struct sl_arena_chunk *new_chunk(size_t size)
{
	struct sl_arena_chunk *chunk;
	size_t total, mapped = 0;

	if (__builtin_add_overflow(size, sizeof(*chunk), &total) || total > SIZE_MAX / 2)
		return NULL;
	if (total >= HUGE_PAGE)
		mapped = total = (total + HUGE_PAGE - 1) & ~(size_t)(HUGE_PAGE - 1);
	chunk = mapped ? map_huge(mapped) : calloc(1, total);
	if (!chunk)
		return NULL;
	chunk->mapped = mapped;
	chunk->size = total - sizeof(*chunk);
	ASAN_POISON_MEMORY_REGION(chunk->bytes, chunk->size);
	return chunk;
}

/* Into the list, but not as the one that has room. */
static void link_behind(struct sl_arena *arena, struct sl_arena_chunk *chunk)
{
	struct sl_arena_chunk **at = arena->chunks ? &arena->chunks->next : &arena->chunks;

	chunk->next = *at;
	*at = chunk;
}

/* A chunk with room for `size` bytes, linked in. Sizes double, so that a small model stays small. */
static struct sl_arena_chunk *grow(struct sl_arena *arena, size_t size)
{
	struct sl_arena_chunk *newest = arena->chunks;
	size_t want = newest ? newest->size * 2 : 0;

	if (want < FIRST_CHUNK)
		want = FIRST_CHUNK;
	if (want > LARGEST_CHUNK)
		want = LARGEST_CHUNK;
	bool own = size > want / 4;
	struct sl_arena_chunk *chunk = new_chunk(own ? size : want);
	if (!chunk)
		return NULL;
	if (own) {
		link_behind(arena, chunk);
	} else {
		chunk->next = newest;
		arena->chunks = chunk;
	}
	return chunk;
}

void *sl_arena_alloc(struct sl_arena *arena, size_t size)
{
	struct sl_arena_chunk *chunk = arena->chunks;
	size_t need = (size + alignof(max_align_t) - 1) & ~(alignof(max_align_t) - 1);

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

bool sl_arena_adopt(struct sl_arena *arena, void *bytes, size_t size)
{
	struct sl_arena_chunk *chunk = must_fail() ? NULL : new_chunk(0);

	if (!chunk)
		return false;
	chunk->adopted = bytes;
	link_behind(arena, chunk);
	arena->bytes += size;
	return true;
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
