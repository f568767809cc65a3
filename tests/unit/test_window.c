/*
 * test_window.c - reading stretches of a file that is not in the page cache, in pages of both sizes.
 */
#include "fs/window.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

#define SIZE  (UINT64_C(40) << 20)
#define TMPFS 0x01021994

static int fd = -1;

/* In the working directory: /tmp may be memory alone. */
static void make_file(void)
{
	char name[] = "window-XXXXXX";
	unsigned char *bytes = malloc(SIZE);

	cr_assert(bytes != NULL);
	for (size_t i = 0; i < SIZE; i++)
		bytes[i] = (unsigned char)(i * 2654435761u >> 13);
	fd = mkstemp(name);
	cr_assert(fd >= 0);
	unlink(name);
	cr_assert_eq(write(fd, bytes, SIZE), (ssize_t)SIZE);
	free(bytes);
}

/* Before Linux 6.5, and where cachestat(2) is forbidden, nothing tells what is cached. */
static bool is_told(void)
{
	int memory = memfd_create("cached", MFD_CLOEXEC);
	bool told = write(memory, "x", 1) == 1 && window_is_cached(memory, 0, 1);

	close(memory);
	return told;
}

static void close_file(void)
{
	close(fd);
}

TestSuite(window, .init = make_file, .fini = close_file, .timeout = 60);

/* Nothing of it is cached then; false where that cannot be had. */
static bool evict(void)
{
	struct statfs fs;

	cr_assert_eq(fstatfs(fd, &fs), 0);
	return fs.f_type != TMPFS && !fsync(fd) && !posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) &&
	       !window_is_cached(fd, 0, SIZE);
}

static void read_window(uint64_t start, uint64_t end, bool large)
{
	struct window window;

	cr_assert_eq(window_open(&window, fd, start, end), 0);
	window_read(&window, large);
	for (uint64_t i = 0; i < window.len; i++)
		cr_assert_eq(window.bytes[i], (unsigned char)((start + i) * 2654435761u >> 13));
	window_close(&window);
	cr_assert(window_is_cached(fd, start, end) || !is_told());
}

Test(window, is_cached_after_it_was_read)
{
	static const uint64_t starts[] = { 0, 4096, 2 << 20, (4 << 20) + 8192, 39 << 20 };
	static const uint64_t lens[] = { 1, 4096, 300000, 2 << 20, (8 << 20) + 1, SIZE };

	for (size_t s = 0; s < sizeof(starts) / sizeof(*starts); s++)
		for (size_t l = 0; l < sizeof(lens) / sizeof(*lens); l++)
			for (int large = 0; large < 2; large++) {
				uint64_t end = starts[s] + lens[l];

				evict();
				read_window(starts[s], end < SIZE ? end : SIZE, large);
			}
}

/* Other ranks may never want the rest. */
Test(window, reads_nothing_else)
{
	const uint64_t start = 5 << 20, end = 9 << 20;

	if (!is_told() || !evict())
		cr_skip_test("nothing tells what is cached here, or files stay in memory");
	read_window(start, end, false);
	for (uint64_t at = 0; at < SIZE; at += 4096)
		cr_assert_eq(window_is_cached(fd, at, at + 1), at >= start && at < end, "page at %llu",
			     (unsigned long long)at);
}

Test(window, none_is_opened_of_a_bad_descriptor)
{
	struct window window;

	cr_assert_eq(window_open(&window, -1, 0, 4096), -EBADF);
	cr_assert(!window_is_cached(-1, 0, 4096));
}
