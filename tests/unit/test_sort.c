/*
 * test_sort.c - tensors in order, against qsort: in runs as shards have them, alternating, equal, random.
 */
#include "slicer/sort.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 1000 };

static char names[N][16];
static struct sl_tensor tensors[N], want[N];

static int by_name_and_place(const void *a, const void *b)
{
	const struct sl_tensor *x = a, *y = b;
	int order = sl_tensor_by_name(x, y);

	return order ? order : (x->off > y->off) - (x->off < y->off);
}

/* Where the order says nothing, tensors stay as they came: .off is their place. */
static void check(size_t n, size_t (*key)(size_t i, size_t n))
{
	struct sl_error err = SL_ERROR_INIT;

	for (size_t i = 0; i < n; i++) {
		snprintf(names[i], sizeof(names[i]), "%05zu", key(i, n));
		tensors[i] = want[i] = (struct sl_tensor){ .name = names[i], .off = i };
	}
	qsort(want, n, sizeof(*want), by_name_and_place);
	cr_assert_eq(sl_sort_tensors(tensors, n, sl_tensor_by_name, &err), 0, "%s", err.text);
	for (size_t i = 0; i < n; i++)
		cr_assert(tensors[i].off == want[i].off, "%zu of %zu: '%s', not '%s'", i, n, tensors[i].name,
			  want[i].name);
}

static size_t sorted(size_t i, size_t n)
{
	(void)n;
	return i;
}

static size_t reversed(size_t i, size_t n)
{
	return n - i;
}

static size_t two_runs_of_blocks(size_t i, size_t n)
{
	size_t half = n / 2, at = i % (half ? half : 1);

	return at / 50 * 100 + at % 50 + (i < half ? 0 : 50);
}

static size_t alternating(size_t i, size_t n)
{
	size_t half = (n + 1) / 2;

	return i < half ? 2 * i : 2 * (i - half) + 1;
}

static size_t few_values(size_t i, size_t n)
{
	(void)n;
	return i * 7919 % 5;
}

static size_t scattered(size_t i, size_t n)
{
	(void)n;
	return i * 7919 % 99991;
}

Test(sort, against_qsort)
{
	static size_t (*const keys[])(size_t i, size_t n) = { sorted,	   reversed,   two_runs_of_blocks,
							      alternating, few_values, scattered };
	static const size_t sizes[] = { 0, 1, 2, 3, 7, 64, 65, 999, N };

	for (size_t k = 0; k < sizeof(keys) / sizeof(keys[0]); k++) {
		for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++)
			check(sizes[s], keys[k]);
	}
}
