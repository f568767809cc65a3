/*
 * locate.h - which files of a directory are the weights, told from their names alone.
 */
#ifndef SLICER_LOCATE_H
#define SLICER_LOCATE_H

#include "slicer/arena.h"
#include "slicer/error.h"
#include "slicer/shards.h"
#include <stdint.h>

struct sl_located {
	enum sl_format format; /* HF or MISTRAL */
	const char *index;     /* the file that decides, or NULL */
	const char **files;    /* weight files of that format in the directory, sorted; with an index, that decides */
	uint32_t n_files;
};

/* Look through the directory `dir`, open as `dirfd`. -ENOENT, with a sentence on what is there instead, when it has no
 * weights of that format; -EINVAL when it cannot be told which files they are. */
int sl_locate(struct sl_located *located, int dirfd, const char *dir, enum sl_format format, struct sl_arena *arena,
	      struct sl_error *err) SL_MUST_CHECK;

/* For weights without an index: do the names "…-00001-of-00004…" make one complete set? */
int sl_located_check_split(const struct sl_located *located, struct sl_error *err) SL_MUST_CHECK;

/* Of a name that ends "-N-of-M.safetensors": N, and *total = M; *total is 0 when it has no such end. */
unsigned sl_split_number(const char *name, unsigned *total);

#endif
