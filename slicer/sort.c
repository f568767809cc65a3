/*
 * sort.c - merge neighbouring runs into the other of two buffers until one run is left. Shards have their layers to
 * themselves, so that merging them is copying long stretches: where one ends is searched for in doubling steps.
 */
#include "slicer/sort.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

int sl_tensor_by_name(const struct sl_tensor *a, const struct sl_tensor *b)
{
	int names = strcmp(a->name, b->name);

	return names ? names : (a->shard > b->shard) - (a->shard < b->shard);
}

int sl_tensor_by_offset(const struct sl_tensor *a, const struct sl_tensor *b)
{
	if (a->off != b->off)
		return a->off < b->off ? -1 : 1;
	if (a->len != b->len)
		return a->len < b->len ? -1 : 1;
	return strcmp(a->name, b->name);
}

/* One past the end of the sorted run that begins at `at`. */
static size_t run_end(const struct sl_tensor *tensors, size_t at, size_t n, sl_tensor_order order)
{
	if (at == n)
		return n;
	for (at++; at < n && order(&tensors[at - 1], &tensors[at]) <= 0;)
		at++;
	return at;
}

/* How many of the sorted tensors at `at` come before `pivot`, or are equal to it where `equal` says so. */
static size_t stretch(const struct sl_tensor *at, size_t n, const struct sl_tensor *pivot, bool equal,
		      sl_tensor_order order)
{
	size_t low = 0, step = 1;

	while (low + step <= n && order(&at[low + step - 1], pivot) < equal) {
		low += step;
		step *= 2;
	}
	for (; step > 0; step /= 2) {
		if (low + step <= n && order(&at[low + step - 1], pivot) < equal)
			low += step;
	}
	return low;
}

static struct sl_tensor *copy(struct sl_tensor *to, const struct sl_tensor *from, size_t n)
{
	memcpy(to, from, n * sizeof(*to));
	return to + n;
}

static void merge(const struct sl_tensor *a, const struct sl_tensor *a_end, const struct sl_tensor *b,
		  const struct sl_tensor *b_end, struct sl_tensor *to, sl_tensor_order order)
{
	while (a < a_end && b < b_end) {
		size_t n = stretch(a, (size_t)(a_end - a), b, true, order);
		to = copy(to, a, n);
		a += n;
		n = a < a_end ? stretch(b, (size_t)(b_end - b), a, false, order) : 0;
		to = copy(to, b, n);
		b += n;
	}
	to = copy(to, a, (size_t)(a_end - a));
	copy(to, b, (size_t)(b_end - b));
}

/* Merge each pair of runs; returns how many runs that leaves. */
static size_t merge_pass(const struct sl_tensor *from, size_t n, struct sl_tensor *to, sl_tensor_order order)
{
	size_t runs = 0;

	for (size_t a = 0; a < n; runs++) {
		size_t b = run_end(from, a, n, order), end = run_end(from, b, n, order);
		merge(from + a, from + b, from + b, from + end, to + a, order);
		a = end;
	}
	return runs;
}

int sl_sort_tensors(struct sl_tensor *tensors, size_t n, sl_tensor_order order, struct sl_error *err)
{
	struct sl_tensor *from = tensors, *to;

	if (run_end(tensors, 0, n, order) == n)
		return 0;
	struct sl_tensor *other = malloc(n * sizeof(*other));
	if (!other)
		return sl_fail(err, ENOMEM, "no memory to sort %zu tensors", n);
	for (size_t runs = 2; runs > 1; from = to) {
		to = from == tensors ? other : tensors;
		runs = merge_pass(from, n, to, order);
	}
	if (from != tensors)
		memcpy(tensors, from, n * sizeof(*tensors));
	free(other);
	return 0;
}
