/*
 * error.h - what went wrong, as an errno and one sentence.
 *
 * Every fallible function of the library returns 0 or -errno and takes a `struct sl_error *` last. The first error
 * wins: a later sl_fail() into an error that is already set changes nothing, so that a clean-up path cannot hide the
 * cause. Callers on the way up put what they know in front with sl_error_prefix(): file, then tensor, then numbers.
 * The library never prints.
 */
#ifndef SLICER_ERROR_H
#define SLICER_ERROR_H

#include <stdarg.h>
#include <stddef.h>

#define SL_MUST_CHECK __attribute__((warn_unused_result))

/* Kinds that a caller tells apart: EINVAL is a checkpoint or a request that is wrong, ENOENT a thing that is not
 * there, ESTALE a source that changed under us, EIO a source that cannot be read, ENOMEM, EOVERFLOW a wrapped size. */
struct sl_error {
	int errnum; /* positive errno; 0: no error yet */
	char text[1000];
};

#define SL_ERROR_INIT \
	{             \
		0, "" \
	}

/* Set `err` (may be NULL) unless it is set already; cut at its size, never in the middle of a UTF-8 character.
 * Returns -errnum, or the -errno of the earlier error. */
int sl_fail(struct sl_error *err, int errnum, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
int sl_vfail(struct sl_error *err, int errnum, const char *fmt, va_list ap) __attribute__((format(printf, 3, 0)));

/* Put "…: " in front of the text. Returns -errnum, so that `return sl_error_prefix(err, …)` passes the failure on. */
int sl_error_prefix(struct sl_error *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Write `len` bytes of untrusted text into `dst` (size `cap`, always terminated) with control characters, quotes,
 * backslashes and bytes that are not UTF-8 as \xNN, for messages and logs. Cuts with "…" when it does not fit. */
const char *sl_escape(char *dst, size_t cap, const char *text, size_t len);

/* The same for a terminated string, in a buffer of its own: for the arguments of one sl_fail(). */
struct sl_escaped {
	char text[192];
};
#define SL_ESC(s) (sl_escape((struct sl_escaped){ "" }.text, sizeof(struct sl_escaped), (s), __builtin_strlen(s)))

#endif
