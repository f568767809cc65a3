/*
 * mountpoint.c - checks whose messages say what to do, where mount(2) would say EINVAL, or nothing and hang.
 */
#include "fs/mountpoint.h"
#include "fs/mountinfo.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* How a user of this kind unmounts. */
static const char *unmount_command(void)
{
	return geteuid() ? "fusermount3 -u" : "umount";
}

/* stat() of a dead mount may still be answered from the kernel's cache; statvfs() never is. */
int mountpoint_check_alive(const char *path, struct sl_error *err)
{
	struct statvfs st;

	if (!statvfs(path, &st) || errno != ENOTCONN)
		return 0;
	return sl_fail(err, ENOTCONN, "%s: a mount whose daemon has died is still there (%s): run '%s %s' first", path,
		       strerror(ENOTCONN), unmount_command(), path);
}

static int check_directory(const char *path, struct sl_error *err)
{
	struct stat st;
	int rc = mountpoint_check_alive(path, err);

	if (rc)
		return rc;
	if (!stat(path, &st))
		return S_ISDIR(st.st_mode) ? 0 : sl_fail(err, ENOTDIR, "%s: not a directory", path);
	if (errno == ENOENT)
		return sl_fail(err, ENOENT, "%s: no such directory: make it first", path);
	return sl_fail(err, errno, "%s: %s", path, strerror(errno));
}

static int check_not_mounted(const char *absolute, struct sl_error *err)
{
	struct sl_error none = SL_ERROR_INIT;
	struct mountinfo info;
	int rc = mountinfo_find(absolute, &info, &none);

	if (rc == -ENOENT)
		return 0;
	if (rc)
		return sl_fail(err, none.errnum, "%s", none.text);
	if (strcmp(info.fstype, RANKFS_FSTYPE))
		return 0;
	return sl_fail(err, EBUSY, "%s: rankfs is mounted there already, of %s: run '%s %s' first", absolute,
		       info.source, unmount_command(), absolute);
}

/* Compares devices and inodes of all that is above, so that bind mounts and other names do not matter. */
static int check_not_inside(const char *absolute, const char *source, struct sl_error *err)
{
	struct stat source_st, st;
	char above[PATH_MAX];
	char *slash;

	if (stat(source, &source_st))
		return sl_fail(err, errno, "%s: %s", source, strerror(errno));
	strcpy(above, absolute);
	while ((slash = strrchr(above, '/')) && slash != above) {
		*slash = '\0';
		if (!stat(above, &st) && st.st_dev == source_st.st_dev && st.st_ino == source_st.st_ino)
			return sl_fail(err, EINVAL, "%s: inside the source %s: choose a directory outside of it",
				       absolute, source);
	}
	return 0;
}

int mountpoint_check(const char *path, const char *source, char *absolute, struct sl_error *err)
{
	int rc = check_directory(path, err);

	if (rc)
		return rc;
	if (!realpath(path, absolute))
		return sl_fail(err, errno, "%s: %s", path, strerror(errno));
	rc = check_not_mounted(absolute, err);
	return rc ? rc : check_not_inside(absolute, source, err);
}
