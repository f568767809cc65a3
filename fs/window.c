/*
 * window.c - mapping a stretch of a file, and reading it in large pages.
 *
 * Only a fault in a mapping that wants huge pages asks for them whatever the read-ahead of the disk is set to (mm/filemap.c,
 * do_sync_mmap_readahead): for two blocks, or for the one that it is in where reading is said to be random. It marks them, and
 * whoever touches them next makes the kernel read ahead from there, as far as the disk's setting allows.
 */
#include "fs/window.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SYS_CACHESTAT 451		    /* everywhere but on Alpha */
#define REQUEST	      (UINT64_C(256) << 10) /* of readahead: the kernel cuts a longer one short */

uint64_t window_page(void)
{
	return (uint64_t)sysconf(_SC_PAGESIZE);
}

int window_open(struct window *window, int fd, uint64_t start, uint64_t end)
{
	void *map = mmap(NULL, end - start, PROT_READ, MAP_PRIVATE, fd, (off_t)start);

	if (map == MAP_FAILED)
		return -errno;
	*window = (struct window){ map, end - start, fd, start };
	return 0;
}

void window_close(struct window *window)
{
	munmap(window->bytes, window->len);
}

/* cachestat(2), Linux 6.5, which few C libraries know. */
struct cache_range {
	uint64_t off, len;
};

struct cache_figures {
	uint64_t n_cached, n_dirty, n_writeback, n_evicted, n_recently_evicted;
};

static bool is_page_cached(int fd, uint64_t at)
{
	struct cache_range range = { at, 1 };
	struct cache_figures figures = { 0 };

	return syscall(SYS_CACHESTAT, fd, &range, &figures, 0) == 0 && figures.n_cached;
}

/* The start of the next block after `at`, or `end`. */
static uint64_t next_block(uint64_t at, uint64_t end)
{
	uint64_t next = (at | (WINDOW_BLOCK - 1)) + 1;

	return next < end ? next : end;
}

bool window_is_cached(int fd, uint64_t start, uint64_t end)
{
	bool cached = is_page_cached(fd, end - 1);

	for (uint64_t at = start; cached && at < end; at = next_block(at, end))
		cached = is_page_cached(fd, at);
	return cached;
}

static void wait_for(const struct window *window, uint64_t at)
{
	uint64_t page = window_page();

	madvise(window->bytes + ((at - window->start) & ~(page - 1)), page, MADV_POPULATE_READ);
}

static void start_reading(const struct window *window, uint64_t at, uint64_t end)
{
	for (; at < end; at += REQUEST)
		readahead(window->fd, (off_t)at, end - at < REQUEST ? end - at : REQUEST);
}

static void read_small(const struct window *window)
{
	start_reading(window, window->start, window->start + window->len);
	madvise(window->bytes, window->len, MADV_RANDOM);
}

/* Whole blocks as large pages, when the rest is on its way. */
static void read_large(const struct window *window)
{
	uint64_t end = window->start + window->len, first = (window->start + WINDOW_BLOCK - 1) & ~(WINDOW_BLOCK - 1),
		 last = end & ~(WINDOW_BLOCK - 1);

	start_reading(window, window->start, first < end ? first : end);
	start_reading(window, last > first ? last : first, end);
	madvise(window->bytes, window->len, MADV_RANDOM);
	madvise(window->bytes, window->len, MADV_HUGEPAGE);
	for (uint64_t at = first; at < last; at += WINDOW_BLOCK)
		wait_for(window, at);
}

void window_read(const struct window *window, bool large)
{
	/* With other pages than of 4 KiB the large ones have 32 MiB or more. */
	if (large && window_page() == 4096)
		read_large(window);
	else
		read_small(window);
	wait_for(window, window->start + window->len - 1);
}
