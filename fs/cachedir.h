/*
 * cachedir.h - where catalogues of checkpoints are kept (slicer/cache.h): $XDG_CACHE_HOME/rankfs, else ~/.cache/rankfs.
 */
#ifndef FS_CACHEDIR_H
#define FS_CACHEDIR_H

#include "fs/options.h"
#include "slicer/cache.h"
#include "slicer/model.h"
#include <limits.h>

struct cachedir {
	struct sl_cache cache; /* .dirfd is -1 when there is none */
	char path[PATH_MAX];   /* of the directory; "" when it cannot be told */
	char why[200];	       /* there is none; "" for no reason: -o nocache, or (of cachedir_find) not made yet */
	char build[160];
};

/* Open the directory; `make` makes it. It must be this user's own. What is wrong is said in .why, and is no error. */
void cachedir_find(struct cachedir *dir, bool make);
void cachedir_close(struct cachedir *dir);

/* Entries that are there, and their bytes. */
unsigned cachedir_count(const struct cachedir *dir, uint64_t *bytes);

/* sl_model_open() with the options and, unless they forbid it, the cache. `dir` tells what became of it, and needs no closing. */
int cachedir_open_model(struct cachedir *dir, struct sl_model **model, const char *source,
			const struct options *options, struct sl_error *err) SL_MUST_CHECK;

#endif
