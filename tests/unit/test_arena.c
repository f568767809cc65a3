/*
 * test_arena.c - memory that is zeroed, aligned, never handed out twice, and gone at once.
 */
#include "slicer/arena.h"

#include <criterion/criterion.h>
#include <stdalign.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static struct sl_arena arena;

static void setup(void)
{
	sl_arena_init(&arena);
}

static void teardown(void)
{
	sl_arena_release(&arena);
	sl_arena_fail_after(0);
}

TestSuite(arena, .init = setup, .fini = teardown, .timeout = 30);

static int is_zero(const unsigned char *bytes, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		if (bytes[i])
			return 0;
	}
	return 1;
}

/* Sizes of every kind, each filled with a number of its own: none disturbs another. */
Test(arena, allocations_are_apart)
{
	enum { N = 400 };
	static unsigned char *at[N];
	static size_t sizes[N];

	for (unsigned i = 0; i < N; i++) {
		sizes[i] = i % 50 == 49 ? 100000 + i : i * 7 % 600;
		at[i] = sl_arena_alloc(&arena, sizes[i]);
		cr_assert(at[i] != NULL);
		cr_assert_eq((uintptr_t)at[i] % alignof(max_align_t), 0);
		cr_assert(is_zero(at[i], sizes[i]));
		memset(at[i], (int)(i % 255 + 1), sizes[i]);
	}
	for (unsigned i = 0; i < N; i++) {
		for (size_t b = 0; b < sizes[i]; b++)
			cr_assert_eq(at[i][b], i % 255 + 1);
	}
}

Test(arena, nothing_is_something)
{
	cr_assert(sl_arena_alloc(&arena, 0) != NULL);
	cr_assert(sl_arena_array(&arena, 0, 8) != NULL);
}

/* Chunks that grow to more than a huge page, and what does not fit into them. */
Test(arena, many_megabytes)
{
	enum { N = 40, SIZE = 3 << 18 };
	unsigned char *at[N];

	for (unsigned i = 0; i < N; i++) {
		at[i] = sl_arena_alloc(&arena, SIZE + i * 4096u * (i % 7));
		cr_assert(at[i] != NULL);
		cr_assert_eq((uintptr_t)at[i] % alignof(max_align_t), 0);
		cr_assert(is_zero(at[i], SIZE));
		memset(at[i], (int)i + 1, SIZE);
	}
	for (unsigned i = 0; i < N; i++)
		cr_assert(at[i][0] == i + 1 && at[i][SIZE - 1] == i + 1);
}

/* The sanitizers see what is not freed, or twice. */
Test(arena, adopts)
{
	char *first = strdup("first"), *second = malloc(10 << 20), *third = strdup("third");

	cr_assert(sl_arena_adopt(&arena, first, 6));
	for (unsigned i = 0; i < 100; i++)
		cr_assert(sl_arena_alloc(&arena, 1000) != NULL);
	cr_assert(sl_arena_adopt(&arena, second, 10 << 20));
	cr_assert(sl_arena_adopt(&arena, NULL, 0));
	cr_assert_eq(arena.bytes, 6 + 100 * 1008 + (10 << 20));
	sl_arena_fail_after(1);
	cr_assert(!sl_arena_adopt(&arena, third, 6));
	cr_assert_str_eq(first, "first");
	free(third);
}

Test(arena, sizes_that_wrap)
{
	cr_assert(sl_arena_alloc(&arena, SIZE_MAX) == NULL);
	cr_assert(sl_arena_alloc(&arena, SIZE_MAX - 40) == NULL);
	cr_assert(sl_arena_array(&arena, SIZE_MAX / 2, 3) == NULL);
	cr_assert(sl_arena_array(&arena, SIZE_MAX / 8, 16) == NULL);
	/* And it still works. */
	cr_assert(sl_arena_alloc(&arena, 10) != NULL);
}

Test(arena, text)
{
	cr_assert_str_eq(sl_arena_strdup(&arena, ""), "");
	cr_assert_str_eq(sl_arena_strdup(&arena, "tensor"), "tensor");
	cr_assert_str_eq(sl_arena_strndup(&arena, "tensor", 3), "ten");
	cr_assert_str_eq(sl_arena_printf(&arena, "%s-%d", "rank", 7), "rank-7");
	cr_assert_eq(strlen(sl_arena_printf(&arena, "%10000s", "x")), 10000);
}

Test(arena, bytes_are_counted)
{
	size_t before = arena.bytes;

	cr_assert(sl_arena_alloc(&arena, 1000) != NULL);
	cr_assert_geq(arena.bytes - before, 1000);
	cr_assert_leq(arena.bytes - before, 1000 + sizeof(max_align_t));
}

Test(arena, used_again_after_its_release)
{
	sl_arena_release(&arena);
	cr_assert_eq(arena.bytes, 0);
	cr_assert_str_eq(sl_arena_strdup(&arena, "again"), "again");
}

Test(arena, the_nth_allocation_fails)
{
	sl_arena_fail_after(3);
	cr_assert(sl_arena_alloc(&arena, 1) != NULL);
	cr_assert(sl_arena_strdup(&arena, "x") != NULL);
	cr_assert(sl_arena_alloc(&arena, 1) == NULL);
	cr_assert(sl_arena_printf(&arena, "x") == NULL);
	cr_assert(sl_arena_strdup(&arena, "x") == NULL);
	sl_arena_fail_after(0);
	cr_assert(sl_arena_alloc(&arena, 1) != NULL);
}
