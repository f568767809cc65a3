/*
 * guard.h - touching mapped files that may fail under us.
 *
 * A page of a mapping that cannot be had - the file has shrunk, its disk fails, there is no memory for a page of tmpfs -
 * raises SIGBUS. Within guard_run(), and for the given ranges only, that ends the function and becomes -EFAULT; anywhere
 * else it kills the program as ever.
 */
#ifndef FS_GUARD_H
#define FS_GUARD_H

#include "slicer/error.h"
#include <stddef.h>

struct guard_range {
	const unsigned char *start;
	size_t len;
};

/* Install the handler. Once, before any thread runs guarded. */
int guard_install(struct sl_error *err) SL_MUST_CHECK;

/* Run `fn`, which may be cut off in the middle: it holds no lock and owns nothing. Guarded are `n` ranges and one `more`
 * (of length 0: none). What `fn` returns, or -EFAULT. Not to be nested. */
typedef int guard_fn(void *context);
int guard_run(const struct guard_range *ranges, size_t n, struct guard_range more, guard_fn *fn,
	      void *context) SL_MUST_CHECK;

#endif
