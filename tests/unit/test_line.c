/*
 * test_line.c - what is foreseen of a rank's reader, on a clock of the test's own.
 */
#include "fs/line.h"

#include <criterion/criterion.h>
#include <stdlib.h>

enum { N = 8 };

#define PART  (UINT64_C(400) << 20)
#define READ  PART /* ns: a byte a ns */
#define LIMIT UINT64_MAX

static struct sl_file files[N];
static struct sl_view view = { .files = files, .n_files = N, .n_weights = N };
static struct line *line;

static void setup(void)
{
	for (int i = 0; i < N; i++)
		files[i].size = PART;
	line = line_new(&view);
	cr_assert(line != NULL);
}

static void teardown(void)
{
	free(line);
}

TestSuite(line, .init = setup, .fini = teardown);

static int64_t first_wanted(uint64_t now)
{
	struct part *part = line_first_wanted(line, LIMIT, now);

	return part ? (int64_t)part_index(part) : -1;
}

Test(line, opens_alone_foresee_nothing)
{
	for (uint32_t i = 0; i < N; i++)
		cr_assert(!line_opened(line, i, i * READ));
	cr_assert_eq(first_wanted(N * READ), -1);
}

Test(line, a_part_that_is_read_foresees_those_that_follow)
{
	line_read(line, 2, 0);
	cr_assert_eq(first_wanted(1), 3);
	line->parts[3].state = PART_FILLING;
	cr_assert_eq(first_wanted(1), 4);
	line->parts[4].state = PART_FULL;
	cr_assert_eq(first_wanted(1), -1, "not more than LINE_AHEAD");
	cr_assert(line_opened(line, 3, READ));
	cr_assert_eq(first_wanted(READ), 5);
	cr_assert(!line_opened(line, 7, 2 * READ), "out of order");
}

Test(line, headers_that_are_read_one_after_another_do_not_move_it_on)
{
	line_read(line, 0, 0);
	cr_assert(line_opened(line, 1, READ));
	cr_assert(!line_opened(line, 2, READ + 1000000), "400 MiB in a millisecond");
	cr_assert_eq(first_wanted(READ + 1000000), 2);
}

Test(line, after_the_last_part_comes_the_first)
{
	line_read(line, N - 1, 0);
	cr_assert_eq(first_wanted(1), 0);
	cr_assert(line_claims(line, 1, 1));
	cr_assert(!line_claims(line, 2, 1));
	cr_assert(line_opened(line, 0, READ));
}

Test(line, a_reader_who_has_stopped_claims_nothing)
{
	line_read(line, 0, 0);
	cr_assert(line_claims(line, 1, LINE_IDLE_NS - 1));
	cr_assert(!line_claims(line, 1, LINE_IDLE_NS));
	cr_assert_eq(first_wanted(LINE_IDLE_NS), -1);
}

Test(line, what_is_open_or_too_large_is_not_wanted)
{
	line_read(line, 0, 0);
	line->parts[1].n_opens = 1;
	cr_assert_eq(first_wanted(1), 2);
	cr_assert_null(line_first_wanted(line, PART - 1, 1));
}

Test(line, a_single_part_never_follows_itself)
{
	struct sl_view one = { .files = files, .n_files = 1, .n_weights = 1 };
	struct line *single = line_new(&one);

	line_read(single, 0, 0);
	cr_assert_null(line_first_wanted(single, LIMIT, 1));
	cr_assert(!line_opened(single, 0, READ));
	free(single);
}
