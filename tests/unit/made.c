/*
 * made.c - transforms of bytes in memory.
 */
#include "made.h"

#include "slicer/model.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

enum { PIECES = 3, CHUNKS = 40 };

static uint64_t state = 88172645463325252;

uint64_t made_below(uint64_t n)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state % n;
}

unsigned char *made_random(uint64_t len)
{
	unsigned char *bytes = malloc(len + 1);

	cr_assert(bytes);
	for (uint64_t i = 0; i < len; i++)
		bytes[i] = (unsigned char)made_below(256);
	return bytes;
}

/* Bytes in memory as one to PIECES pieces. */
static uint32_t cut(const unsigned char *bytes, uint64_t len, struct sl_piece *pieces)
{
	uint32_t n = 0;

	for (uint64_t at = 0, now; at < len; at += now) {
		now = n + 1 < PIECES ? 1 + made_below(len - at) : len - at;
		pieces[n++] = (struct sl_piece){ .off = at,
						 .len = now,
						 .data = bytes + at,
						 .run = now,
						 .stride = now,
						 .count = 1,
						 .op = SL_OP_DATA };
	}
	return n;
}

void made_input(struct sl_transform *t, const unsigned char *bytes, uint64_t off, uint64_t rows, uint64_t row_bytes,
		uint64_t stride, uint64_t pitch, uint64_t len)
{
	static struct sl_piece pieces[SL_INPUTS_MAX][PIECES]; /* of the transform that is tested now */
	unsigned i = t->n_inputs++;

	t->in[i] = (struct sl_stream){ pieces[i], cut(bytes, len, pieces[i]), off, stride, pitch };
	t->args.in[i].rows = rows;
	t->args.in[i].row_bytes = row_bytes;
}

static int run_units(void *backend_state, unsigned id, const struct sl_args *args, const struct sl_block *block,
		     struct sl_error *err)
{
	(void)backend_state, (void)err;
	for (uint64_t i = sl_transforms[id]->units(args, block); i-- > 0;)
		sl_transforms[id]->unit(args, block, i);
	return 0;
}

static const struct sl_backend by_units = { .name = "units", .run = run_units };

/* Bytes [at, at + len) between bytes that nothing writes to. */
static void expect_range(const struct sl_model *model, const struct sl_transform *t, const unsigned char *want,
			 uint64_t at, uint64_t len, const char *what)
{
	struct sl_error err = SL_ERROR_INIT;
	unsigned char *got = malloc(len + 2);

	cr_assert(got);
	memset(got, 0xA5, len + 2);
	cr_assert_eq(sl_transform_read(model, t, at, len, got + 1, &err), 0, "%s: %s", what, err.text);
	for (uint64_t i = 0; i < len; i++)
		cr_assert_eq(got[1 + i], want[at + i], "%s, %s: byte %llu is %02x, not %02x", what,
			     model->backend ? "by units" : "by run()", (unsigned long long)(at + i), got[1 + i],
			     want[at + i]);
	cr_assert(got[0] == 0xA5 && got[len + 1] == 0xA5, "%s: written outside [%llu, %llu)", what,
		  (unsigned long long)at, (unsigned long long)(at + len));
	free(got);
}

void made_expect(const struct sl_transform *t, const unsigned char *want, const char *what)
{
	static const struct sl_backend *const backends[] = { NULL, &by_units };
	struct sl_error err = SL_ERROR_INIT;
	uint64_t size = sl_transform_len(&t->args);

	cr_assert_eq(sl_transform_check(t, &err), 0, "%s: %s", what, err.text);
	for (unsigned b = 0; b < 2; b++) {
		static struct sl_model model;
		model.backend = backends[b];
		expect_range(&model, t, want, 0, size, what);
		for (unsigned i = 0; i < CHUNKS; i++) {
			uint64_t at = made_below(size), most = i % 2 ? size - at : size - at < 300 ? size - at : 300;
			expect_range(&model, t, want, at, 1 + made_below(most), what);
		}
	}
}
