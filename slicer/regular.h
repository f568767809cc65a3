/*
 * regular.h - opening files of a directory that somebody else filled: never hangs, never opens a device, follows
 * symlinks, and says in one sentence why not.
 */
#ifndef SLICER_REGULAR_H
#define SLICER_REGULAR_H

#include "slicer/error.h"
#include <stdint.h>
#include <sys/stat.h>

/* Open a regular file, relative to a directory, for reading; *st describes it. The sentence completes one that begins
 * with the file's name ("is a directory", "is a dangling symlink to '…'"), which the caller prefixes. Raises the soft
 * limit on open files when it is reached. */
int sl_regular_open(int dirfd, const char *name, int *fd, struct stat *st, struct sl_error *err) SL_MUST_CHECK;

/* Fill `buf` from `off`: 0, or -EIO when the file is shorter or cannot be read. */
int sl_regular_read(int fd, void *buf, uint64_t off, size_t len, struct sl_error *err) SL_MUST_CHECK;

/* The time of last change as one number. */
static inline int64_t sl_mtime_ns(const struct stat *st)
{
	return (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
}

#endif
