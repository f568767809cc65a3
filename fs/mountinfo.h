/*
 * mountinfo.h - what /proc/self/mountinfo says about a mount point.
 *
 * Asking the file system itself (statfs, stat) from the daemon that serves it would wait for itself; this does not.
 */
#ifndef FS_MOUNTINFO_H
#define FS_MOUNTINFO_H

#include "slicer/error.h"
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#define RANKFS_FSTYPE "fuse.rankfs"

struct mountinfo {
	unsigned major, minor; /* of its device: the name of its bdi; the minor is that of its FUSE connection */
	char mountpoint[PATH_MAX];
	char fstype[64];
	char source[PATH_MAX];
};

/* The uppermost mount at exactly that absolute path without symbolic links: 0, or -ENOENT when nothing is mounted there,
 * or the -errno of reading the table. */
int mountinfo_find(const char *path, struct mountinfo *info, struct sl_error *err) SL_MUST_CHECK;

/* Parse one line of the table; false when it is none. For tests and for mountinfo_find(). Cuts `line`. */
bool mountinfo_parse(char *line, struct mountinfo *info);

#endif
