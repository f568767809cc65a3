#include "checkpoint.h"
#include "twin.h"
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
TestSuite(view, .init = checkpoint_setup, .fini = checkpoint_teardown, .timeout = 120);
Test(view, smoke)
{
	for (unsigned i = 0; i < n_families; i++) {
		struct sl_model *m = family_open(&families[i], "BF16", "bfloat16", false);
		sl_model_close(m);
		fixture_close(); fixture_open();
	}
}
