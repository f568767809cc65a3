/*
 * export.c - what has to be written, then workers that write it, file by file, and what is on the disk for good
 * only when all of it is.
 */
#include "fs/export.h"
#include "fs/copy.h"
#include "fs/print.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { SAMPLES = 32, SAMPLE = 4096, TICK_MS = 200, MODE = 0666, DIR_MODE = 0777 };

void export_init(struct export *export, struct tree *tree)
{
	*export = (struct export){ .tree = tree, .dest = -1 };
	pthread_mutex_init(&export->lock, NULL);
	pthread_cond_init(&export->ended, NULL);
}

void export_release(struct export *export)
{
	for (size_t i = 0; i < export->n; i++)
		free(export->files[i].path);
	free(export->files);
	if (export->dest >= 0)
		close(export->dest);
	pthread_mutex_destroy(&export->lock);
	pthread_cond_destroy(&export->ended);
}

static int add_file(struct export *export, struct node *node, const char *path, struct sl_error *err)
{
	size_t cap = export->cap ? 2 * export->cap : 64;
	struct export_file *files = export->files;

	if (export->n == export->cap) {
		files = reallocarray(files, cap, sizeof(*files));
		if (!files)
			return sl_fail(err, ENOMEM, "no memory for a list of files");
		export->files = files;
		export->cap = cap;
	}
	files[export->n] = (struct export_file){ .node = node, .path = strdup(path) };
	if (!files[export->n].path)
		return sl_fail(err, ENOMEM, "no memory for a list of files");
	export->n++;
	return 0;
}

/* `path` is the directory's, with a slash behind unless it is empty; names are put there in turn. */
static int add_below(struct export *export, struct node *dir, char *path, size_t used, struct sl_error *err)
{
	struct node *const *children;
	size_t n;
	int rc = tree_children(export->tree, dir, &children, &n, err);

	for (size_t i = 0; rc == 0 && i < n; i++) {
		size_t len = strlen(children[i]->name);

		if (used + len + 2 > PATH_MAX)
			return sl_fail(err, ENAMETOOLONG, "%s: a path is too long", SL_ESC(path));
		memcpy(path + used, children[i]->name, len + 1);
		if (children[i]->kind == NODE_DIR) {
			memcpy(path + used + len, "/", 2);
			rc = add_below(export, children[i], path, used + len + 1, err);
		} else if (children[i]->kind != NODE_LIVE) {
			rc = add_file(export, children[i], path, err);
		}
	}
	path[used] = '\0';
	return rc;
}

int export_add(struct export *export, struct node *node, struct sl_error *err)
{
	char path[PATH_MAX] = "";

	if (node->kind == NODE_DIR)
		return add_below(export, node, path, 0, err);
	return add_file(export, node, node->name, err);
}

/* All directories of a path, up to its last slash. */
static int make_dirs(int at, const char *path, struct sl_error *err)
{
	char dir[PATH_MAX];

	for (const char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
		size_t len = (size_t)(slash - path);

		if (len == 0)
			continue;
		if (len >= sizeof(dir))
			return sl_fail(err, ENAMETOOLONG, "%s: the path is too long", SL_ESC(path));
		memcpy(dir, path, len);
		dir[len] = '\0';
		if (mkdirat(at, dir, DIR_MODE) && errno != EEXIST)
			return sl_fail(err, errno, "%s: cannot be made: %s", SL_ESC(dir), strerror(errno));
	}
	return 0;
}

static int open_dest(struct export *export, const char *dest, struct sl_error *err)
{
	int rc = make_dirs(AT_FDCWD, dest, err);

	if (rc)
		return rc;
	if (mkdir(dest, DIR_MODE) && errno != EEXIST)
		return sl_fail(err, errno, "%s: cannot be made: %s", SL_ESC(dest), strerror(errno));
	export->dest = open(dest, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (export->dest < 0)
		return sl_fail(err, errno, "%s: cannot be opened: %s", SL_ESC(dest), strerror(errno));
	return 0;
}

/* Do samples all over the file have the bytes that they should? What cannot be read is not right. */
static bool samples_equal(struct handle *handle, int fd, struct sl_error *err)
{
	unsigned char is[SAMPLE], should[SAMPLE];
	uint64_t size = handle->node->size, step = size / SAMPLES > SAMPLE ? size / SAMPLES : SAMPLE;

	for (uint64_t off = 0; off < size; off += step) {
		ssize_t n = handle_read(handle, should, off, SAMPLE, err);

		if (n < 0 || pread(fd, is, SAMPLE, (off_t)off) != n || memcmp(is, should, (size_t)n) != 0)
			return false;
	}
	return true;
}

static bool same_time(const struct timespec *a, const struct timespec *b)
{
	return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

/* Is the file there, and right? An error of reading the source is an error here too. */
static int see_existing(const struct export *export, struct export_file *file, struct sl_error *err)
{
	struct handle handle;
	struct stat st;
	int fd = openat(export->dest, file->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK), rc = 0;

	if (fd < 0)
		return 0;
	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && (uint64_t)st.st_size == file->node->size &&
	    same_time(&st.st_mtim, &file->node->mtime)) {
		rc = handle_open(&handle, export->tree, file->node, err);
		if (rc == 0) {
			file->done = samples_equal(&handle, fd, err);
			rc = -err->errnum;
			handle_close(&handle);
		}
	}
	close(fd);
	return rc;
}

static int check_space(const struct export *export, const char *dest, struct sl_error *err)
{
	struct statvfs fs;
	uint64_t free_bytes;

	if (fstatvfs(export->dest, &fs))
		return sl_fail(err, errno, "%s: its file system cannot be looked at: %s", SL_ESC(dest),
			       strerror(errno));
	free_bytes = (uint64_t)fs.f_bavail * fs.f_frsize;
	if (free_bytes < export->total)
		return sl_fail(err, ENOSPC, "%s: %s (%s bytes) are to be written, %s (%s bytes) are free", SL_ESC(dest),
			       print_size(export->total).text, print_count(export->total).text,
			       print_size(free_bytes).text, print_count(free_bytes).text);
	return 0;
}

int export_prepare(struct export *export, const char *dest, struct sl_error *err)
{
	int rc = open_dest(export, dest, err);

	for (size_t i = 0; rc == 0 && i < export->n; i++) {
		rc = make_dirs(export->dest, export->files[i].path, err);
		if (rc == 0 && !export->force)
			rc = see_existing(export, &export->files[i], err);
		if (!export->files[i].done)
			export->total += export->files[i].node->size;
	}
	return rc ? rc : check_space(export, dest, err);
}

/* A worker's own things. */
struct worker {
	struct export *export;
	struct copier copier;
	pthread_t thread;
};

static bool count_written(void *context, uint64_t bytes)
{
	struct export *export = context;

	atomic_fetch_add_explicit(&export->written, bytes, memory_order_relaxed);
	return !atomic_load_explicit(&export->stop, memory_order_relaxed);
}

static int partial_name(const char *path, char *partial, size_t size, struct sl_error *err)
{
	const char *slash = strrchr(path, '/');
	int dir = slash ? (int)(slash + 1 - path) : 0;

	if ((size_t)snprintf(partial, size, "%.*s.%s.partial", dir, path, path + dir) >= size)
		return sl_fail(err, ENAMETOOLONG, "the path is too long");
	return 0;
}

/* The bytes, the time, and a hint to begin to write them out while the next file is made. */
static int write_file(struct worker *worker, const struct export_file *file, int fd, struct sl_error *err)
{
	const struct timespec times[2] = { file->node->mtime, file->node->mtime };
	struct handle handle;
	int rc = handle_open(&handle, worker->export->tree, file->node, err);

	if (rc)
		return rc;
	copier_set_out(&worker->copier, fd);
	rc = copier_run(&worker->copier, &handle, err);
	handle_close(&handle);
	if (rc == 0 && futimens(fd, times))
		rc = sl_fail(err, errno, "its time cannot be set: %s", strerror(errno));
	if (rc == 0 && worker->export->sync)
		(void)sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE);
	return rc;
}

static int export_one(struct worker *worker, const struct export_file *file, struct sl_error *err)
{
	int dest = worker->export->dest, fd, rc;
	char partial[PATH_MAX];

	rc = partial_name(file->path, partial, sizeof(partial), err);
	if (rc)
		return rc;
	fd = openat(dest, partial, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, MODE);
	if (fd < 0)
		return sl_fail(err, errno, "cannot be created: %s", strerror(errno));
	rc = write_file(worker, file, fd, err);
	if (close(fd) && rc == 0)
		rc = sl_fail(err, errno, "cannot be written: %s", strerror(errno));
	if (rc == 0 && renameat(dest, partial, dest, file->path))
		rc = sl_fail(err, errno, "cannot be renamed: %s", strerror(errno));
	if (rc)
		(void)unlinkat(dest, partial, 0);
	return rc;
}

static void fail_all(struct export *export, const struct export_file *file, const struct sl_error *err)
{
	pthread_mutex_lock(&export->lock);
	if (export->err.errnum == 0)
		sl_fail(&export->err, err->errnum, "%s: %s", SL_ESC(file->path), err->text);
	pthread_mutex_unlock(&export->lock);
	atomic_store(&export->stop, true);
}

static void *work(void *context)
{
	struct worker *worker = context;
	struct export *export = worker->export;
	size_t i;

	while (!atomic_load(&export->stop) && (i = atomic_fetch_add(&export->next, 1)) < export->n) {
		const struct export_file *file = &export->files[i];
		struct sl_error err = SL_ERROR_INIT;

		if (file->done)
			continue;
		if (export_one(worker, file, &err) && err.errnum)
			fail_all(export, file, &err);
		else if (!export->quiet && !atomic_load(&export->stop))
			printf("%s %s\n", SL_ESC(file->path), print_size(file->node->size).text);
	}
	pthread_mutex_lock(&export->lock);
	export->running--;
	pthread_cond_signal(&export->ended);
	pthread_mutex_unlock(&export->lock);
	return NULL;
}

static int start(struct worker *worker, struct export *export, struct sl_error *err)
{
	int rc = copier_init(&worker->copier, -1, err);

	if (rc)
		return rc;
	worker->export = export;
	worker->copier.progress = count_written;
	worker->copier.context = export;
	rc = pthread_create(&worker->thread, NULL, work, worker);
	if (rc == 0)
		return 0;
	copier_release(&worker->copier);
	return sl_fail(err, rc, "cannot make a thread: %s", strerror(rc));
}

/* Until all have ended, with a tick now and then. */
static void wait_for_workers(struct export *export, void (*tick)(const struct export *))
{
	struct timespec until;

	pthread_mutex_lock(&export->lock);
	clock_gettime(CLOCK_REALTIME, &until);
	while (export->running > 0) {
		until.tv_nsec += TICK_MS * 1000000L;
		until.tv_sec += until.tv_nsec / 1000000000L;
		until.tv_nsec %= 1000000000L;
		while (export->running > 0 && pthread_cond_timedwait(&export->ended, &export->lock, &until) == 0)
			;
		tick(export);
	}
	pthread_mutex_unlock(&export->lock);
}

/* One thread is enough to go on with. */
static int run_workers(struct export *export, struct worker *workers, unsigned jobs,
		       void (*tick)(const struct export *), struct sl_error *err)
{
	struct sl_error error = SL_ERROR_INIT;
	unsigned n = 0;

	export->running = jobs;
	while (n < jobs && start(&workers[n], export, &error) == 0)
		n++;
	if (n == 0)
		return sl_fail(err, error.errnum, "%s", error.text);
	pthread_mutex_lock(&export->lock);
	export->running -= jobs - n;
	pthread_mutex_unlock(&export->lock);
	wait_for_workers(export, tick);
	while (n-- > 0) {
		pthread_join(workers[n].thread, NULL);
		copier_release(&workers[n].copier);
	}
	if (export->err.errnum)
		return sl_fail(err, export->err.errnum, "%s", export->err.text);
	return 0;
}

static int sync_path(int dest, const char *path, struct sl_error *err)
{
	int fd = openat(dest, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	int rc = 0;

	if (fd < 0 || fsync(fd))
		rc = sl_fail(err, errno, "%s: cannot be written out: %s", SL_ESC(path), strerror(errno));
	if (fd >= 0)
		close(fd);
	return rc;
}

/* Files, and each directory once: files of one directory come together. */
static int sync_all(const struct export *export, struct sl_error *err)
{
	char dir[PATH_MAX], last[PATH_MAX] = "";
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < export->n; i++) {
		const char *path = export->files[i].path, *slash = strrchr(path, '/');

		if (export->files[i].done)
			continue;
		rc = sync_path(export->dest, path, err);
		snprintf(dir, sizeof(dir), "%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".");
		if (rc == 0 && strcmp(dir, last) != 0)
			rc = sync_path(export->dest, dir, err);
		memcpy(last, dir, sizeof(last));
	}
	return rc;
}

int export_run(struct export *export, unsigned jobs, void (*tick)(const struct export *), struct sl_error *err)
{
	struct worker *workers = calloc(jobs, sizeof(*workers));
	int rc;

	if (!workers)
		return sl_fail(err, ENOMEM, "no memory for %u workers", jobs);
	rc = run_workers(export, workers, jobs, tick, err);
	free(workers);
	return rc || !export->sync ? rc : sync_all(export, err);
}
