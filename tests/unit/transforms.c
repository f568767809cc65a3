/*
 * transforms.c - the processor's way and the definition's, whole and in pieces.
 */
#include "transforms.h"

#include "slicer/model.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

uint64_t random_below(uint64_t n)
{
	static uint64_t state = 88172645463325252;

	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state % n;
}

void transform_input(struct sl_transform *t, const void *bytes, uint64_t rows, uint64_t row_bytes)
{
	static struct sl_piece pieces[64]; /* take turns */
	static unsigned next;
	struct sl_piece *piece = &pieces[next++ % 64];
	unsigned i = t->n_inputs++;

	piece->len = t->args.batch * rows * row_bytes;
	piece->data = bytes;
	piece->op = SL_OP_DATA;
	t->in[i] = (struct sl_stream){ piece, 1, 0, rows * row_bytes, row_bytes };
	t->args.in[i].rows = rows;
	t->args.in[i].row_bytes = row_bytes;
}

static int run_units(void *state, unsigned id, const struct sl_args *args, const struct sl_block *block,
		     struct sl_error *err)
{
	(void)state, (void)err;
	for (uint64_t i = sl_transforms[id]->units(args, block); i-- > 0;)
		sl_transforms[id]->unit(args, block, i);
	return 0;
}

static const struct sl_backend units = { .name = "units", .run = run_units };

static void compare(const struct sl_model *model, const struct sl_transform *t, const unsigned char *want,
		    const char *what, bool whole)
{
	uint64_t len = sl_transform_len(&t->args);
	unsigned char *got = malloc(len + 1);
	struct sl_error err = SL_ERROR_INIT;

	cr_assert(got);
	got[len] = 0xA5;
	for (uint64_t at = 0, now; at < len; at += now) {
		now = whole ? len : 1 + random_below(random_below(3) ? 5000 : 50);
		now = now < len - at ? now : len - at;
		cr_assert_eq(sl_transform_read(model, t, at, now, got + at, &err), 0, "%s: %s", what, err.text);
	}
	for (uint64_t i = 0; i < len; i++)
		cr_assert_eq(got[i], want[i], "%s: byte %llu is %02x, not %02x (%s, %s)", what, (unsigned long long)i,
			     got[i], want[i], model->backend ? "units" : "blocks", whole ? "whole" : "pieces");
	cr_assert_eq(got[len], 0xA5, "%s: written beyond the end", what);
	free(got);
}

void transform_check(struct sl_transform *t, const unsigned char *want, const char *what)
{
	const struct sl_model blocks = { 0 }, by_units = { .backend = &units };
	const struct sl_transform_row *row = sl_transforms[t->id];
	struct sl_error err = SL_ERROR_INIT;

	cr_assert_eq(sl_transform_check(t, &err), 0, "%s: %s", what, err.text);
	if (row->facts_len)
		t->facts = calloc(1, sizeof(*t->facts) + row->facts_len(&t->args));
	compare(&blocks, t, want, what, true);
	compare(&blocks, t, want, what, false);
	compare(&by_units, t, want, what, true);
	compare(&by_units, t, want, what, false);
	free(t->facts);
	t->facts = NULL;
}
