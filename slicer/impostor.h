/*
 * impostor.h - files that have a weight's name and hold something else: what people find instead of their model.
 */
#ifndef SLICER_IMPOSTOR_H
#define SLICER_IMPOSTOR_H

#include "slicer/error.h"
#include <stddef.h>

/* -EINVAL with a sentence when the first `len` bytes of a file are recognised as a git-lfs pointer, an error page,
 * another container, UTF-16; else 0. 1024 bytes show all that is looked at. A few are also the first bytes of some
 * valid file, so ask this only of one that is refused anyway. */
int sl_impostor_check(const char *head, size_t len, struct sl_error *err) SL_MUST_CHECK;

/* The same for a file that should be binary: any text is an impostor. */
int sl_impostor_check_binary(const char *head, size_t len, struct sl_error *err) SL_MUST_CHECK;

#endif
