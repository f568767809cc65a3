/*
 * cachedir.c - finding the directory. It is believed only if no other user can have written there: what lies in it is taken
 * for what the headers say. root has one too, also where nobody set HOME (a mount at boot).
 */
#include "fs/cachedir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A catalogue of 500,000 tensors takes 64 KiB. Headers of fewer than a thousand are read about as fast as an entry is. */
enum { ROOM = 256 << 20, LEAST = 1000, REST_SECONDS = 2 };

/* The directory in which programs keep their caches; "" when it cannot be told. */
static void find_base(char *path, size_t size)
{
	const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
	const struct passwd *user;

	*path = '\0';
	if (xdg && *xdg == '/') {
		snprintf(path, size, "%s", xdg);
		return;
	}
	if ((!home || *home != '/') && (user = getpwuid(geteuid())))
		home = user->pw_dir;
	if (home && *home == '/')
		snprintf(path, size, "%s/.cache", home);
}

/* A directory of this user, into which nobody else can write where that matters: its descriptor, or -1 with the reason. */
static int open_own(int at, const char *path, int flags, mode_t forbidden, char *why, size_t size)
{
	int fd = openat(at, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | flags);
	struct stat st;

	if (fd < 0) {
		snprintf(why, size, "%s: %s", path, strerror(errno));
		return -1;
	}
	if (fstat(fd, &st) == 0 && st.st_uid == geteuid() && !(st.st_mode & forbidden))
		return fd;
	snprintf(why, size, "%s is another user's, or others may write there", path);
	close(fd);
	return -1;
}

/* The version, and what tells builds of one version apart. */
static void name_build(char *build, size_t size)
{
	struct stat st;

	if (stat("/proc/self/exe", &st))
		memset(&st, 0, sizeof(st));
	snprintf(build, size, "%s %lld %lld.%09ld", RANKFS_VERSION, (long long)st.st_size, (long long)st.st_mtim.tv_sec,
		 st.st_mtim.tv_nsec);
}

void cachedir_find(struct cachedir *dir, bool make)
{
	char base[PATH_MAX - 16];
	int fd;

	*dir = (struct cachedir){ .cache = { .dirfd = -1, .room = ROOM, .least = LEAST, .rest = REST_SECONDS } };
	find_base(base, sizeof(base));
	if (!*base) {
		snprintf(dir->why, sizeof(dir->why), "neither XDG_CACHE_HOME nor HOME is set");
		return;
	}
	snprintf(dir->path, sizeof(dir->path), "%s/rankfs", base);
	name_build(dir->build, sizeof(dir->build));
	dir->cache.build = dir->build;
	if (make)
		mkdir(base, 0700);
	fd = open_own(AT_FDCWD, base, 0, 0, dir->why, sizeof(dir->why));
	if (fd < 0)
		return;
	if (make)
		mkdirat(fd, "rankfs", 0700);
	if (make || !faccessat(fd, "rankfs", F_OK, AT_SYMLINK_NOFOLLOW))
		dir->cache.dirfd = open_own(fd, "rankfs", O_NOFOLLOW, 022, dir->why, sizeof(dir->why));
	close(fd);
}

void cachedir_close(struct cachedir *dir)
{
	if (dir->cache.dirfd >= 0)
		close(dir->cache.dirfd);
	dir->cache.dirfd = -1;
}

unsigned cachedir_count(const struct cachedir *dir, uint64_t *bytes)
{
	int fd = dir->cache.dirfd < 0 ? -1 : openat(dir->cache.dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *stream = fd < 0 ? NULL : fdopendir(fd);
	unsigned n = 0;

	*bytes = 0;
	for (struct dirent *entry; stream && (entry = readdir(stream));) {
		struct stat st;

		if (fstatat(fd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) || !S_ISREG(st.st_mode))
			continue;
		n++;
		*bytes += (uint64_t)st.st_size;
	}
	if (stream)
		closedir(stream);
	else if (fd >= 0)
		close(fd);
	return n;
}

int cachedir_open_model(struct cachedir *dir, struct sl_model **model, const char *source,
			const struct options *options, struct sl_error *err)
{
	struct sl_model_options for_model = options_for_model(options);
	int rc;

	*dir = (struct cachedir){ .cache = { .dirfd = -1 } };
	if (!options->no_cache)
		cachedir_find(dir, true);
	if (dir->cache.dirfd >= 0)
		for_model.cache = &dir->cache;
	rc = sl_model_open(model, source, &for_model, err);
	cachedir_close(dir);
	return rc;
}
