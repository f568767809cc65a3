/*
 * mountpoint.h - may something be mounted there, and is what is there alive?
 */
#ifndef FS_MOUNTPOINT_H
#define FS_MOUNTPOINT_H

#include "slicer/error.h"
#include <limits.h>

/* Check `path`, as the user gave it, for a mount of the directory `source`, and make it absolute into `absolute` of PATH_MAX
 * bytes. It must be a directory that is no rankfs mount, alive or dead, and not be inside the source: the daemon would
 * then serve itself to itself. The source itself and what is above it are fine: the checkpoint is open already. */
int mountpoint_check(const char *path, const char *source, char *absolute, struct sl_error *err) SL_MUST_CHECK;

/* -ENOTCONN with what to do when something is mounted at `path` whose daemon has died; 0 for all else, good or bad. */
int mountpoint_check_alive(const char *path, struct sl_error *err) SL_MUST_CHECK;

#endif
