/*
 * test_process.c - the lists of what engines do to modules: every recipe that they name is there, every row can be reached, and
 * what is refused says why. What they come to is compared in tests/kernel/view.py and tests/oracle.
 */
#include "slicer/engine.h"
#include "slicer/post.h"
#include "slicer/process.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(process, .timeout = 60);

static void check_steps(const struct sl_choice *choice)
{
	for (unsigned i = 0; i < SL_STEPS_MAX && choice->steps[i].recipe; i++)
		cr_expect(sl_recipe_find(choice->steps[i].recipe), "%s: no recipe %s", choice->storage,
			  choice->steps[i].recipe);
	cr_expect(!choice->refused || !choice->steps[0].recipe, "%s is refused and has steps", choice->storage);
	cr_expect(choice->refused || choice->says, "%s: which kernel?", choice->storage);
}

/* Is all that a row takes taken by an earlier one? */
static bool is_hidden(const struct sl_choice *earlier, const struct sl_choice *row)
{
	return !earlier->when && strcmp(earlier->storage, row->storage) == 0 && earlier->kind == row->kind &&
	       (earlier->gpus & row->gpus) == row->gpus && (earlier->kernels & row->kernels) == row->kernels &&
	       earlier->online == row->online;
}

Test(process, choices)
{
	unsigned lists = 0;

	for (int e = 0; e < SL_N_ENGINES; e++) {
		const struct sl_choice *choices = sl_engines[e].choices;
		lists += choices != NULL;
		for (const struct sl_choice *c = choices; c && c->storage; c++) {
			check_steps(c);
			for (const struct sl_choice *earlier = choices; earlier < c; earlier++)
				cr_expect_not(is_hidden(earlier, c), "%s: row %d of %s is never reached", c->storage,
					      (int)(c - choices), sl_engines[e].name);
		}
	}
	cr_assert_eq(lists, 2);
}

/* Every format that a scheme has is in the list of vLLM's kernels, done or refused, as a linear layer or as experts. */
Test(process, formats)
{
	for (const struct sl_scheme *const *scheme = sl_schemes; *scheme; scheme++) {
		for (const struct sl_storage *const *storage = (*scheme)->storages; *storage; storage++) {
			const struct sl_choice *c = sl_engines[SL_KERNEL].choices;
			while (c->storage && strcmp(c->storage, (*storage)->name) != 0)
				c++;
			cr_expect(c->storage, "%s of %s", (*storage)->name, (*scheme)->method);
		}
	}
}
