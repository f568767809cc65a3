/*
 * regular.c - look before opening: a FIFO blocks, a device may act, and a link that leads nowhere deserves better than
 * "No such file or directory".
 */
#include "slicer/regular.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* What a file is that is not regular. */
static const char *kind_of(mode_t mode)
{
	if (S_ISDIR(mode))
		return "a directory";
	if (S_ISFIFO(mode))
		return "a FIFO";
	if (S_ISSOCK(mode))
		return "a socket";
	return "a device";
}

static int check_regular(const struct stat *st, struct sl_error *err)
{
	if (S_ISREG(st->st_mode))
		return 0;
	return sl_fail(err, EINVAL, "is %s, not a regular file", kind_of(st->st_mode));
}

/* Say why stat or open failed, with the target when it is a link. */
static int explain(int dirfd, const char *name, int errnum, struct sl_error *err)
{
	char target[PATH_MAX];
	ssize_t n = readlinkat(dirfd, name, target, sizeof(target) - 1);

	if (n < 0 && errnum == ENOENT)
		return sl_fail(err, ENOENT, "does not exist");
	if (n < 0)
		return sl_fail(err, errnum, "cannot be opened: %s", strerror(errnum));
	target[n] = '\0';
	if (errnum == ENOENT)
		return sl_fail(err, ENOENT, "is a dangling symlink to '%s', which does not exist", SL_ESC(target));
	return sl_fail(err, errnum, "is a symlink to '%s', which cannot be opened: %s", SL_ESC(target),
		       strerror(errnum));
}

/* Soft limits are small (1024) for the sake of select(), which nobody here uses; checkpoints have up to 1000 shards. */
static bool raise_file_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur >= limit.rlim_max)
		return false;
	limit.rlim_cur = limit.rlim_max;
	return setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

/* O_NONBLOCK does nothing to a regular file; it is for a FIFO that takes its place between stat and open. */
static int open_raw(int dirfd, const char *name)
{
	const int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
	int fd = openat(dirfd, name, flags);

	if (fd < 0 && errno == EMFILE && raise_file_limit())
		fd = openat(dirfd, name, flags);
	return fd;
}

int sl_regular_open(int dirfd, const char *name, int *fd, struct stat *st, struct sl_error *err)
{
	if (fstatat(dirfd, name, st, 0))
		return explain(dirfd, name, errno, err);
	int ret = check_regular(st, err);
	if (ret)
		return ret;
	int opened = open_raw(dirfd, name);
	if (opened < 0)
		return explain(dirfd, name, errno, err);
	ret = fstat(opened, st) ? sl_fail(err, errno, "cannot be examined: %s", strerror(errno))
				: check_regular(st, err);
	if (ret)
		close(opened);
	else
		*fd = opened;
	return ret;
}

int sl_regular_read(int fd, void *buf, uint64_t off, size_t len, struct sl_error *err)
{
	for (size_t done = 0; done < len;) {
		ssize_t n = pread(fd, (char *)buf + done, len - done, (off_t)(off + done));
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return sl_fail(err, EIO, "cannot be read at byte %" PRIu64 ": %s", off + done, strerror(errno));
		if (n == 0)
			return sl_fail(err, EIO, "ends at byte %" PRIu64 ", but %zu bytes at %" PRIu64 " are needed",
				       off + done, len, off);
		done += (size_t)n;
	}
	return 0;
}
