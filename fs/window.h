/*
 * window.h - a stretch of a source file, mapped for as long as it is copied from.
 *
 * The pages of a file that is not cached yet can come in sizes from 4 KiB to 2 MiB, and whoever reads it first decides: page faults
 * and readahead(2) make small ones, each with its own entry in the page tables and on the kernel's lists. Large ones cost a third
 * of the processor's time to read, and less than half of it whenever the file is mapped again, by anybody.
 */
#ifndef FS_WINDOW_H
#define FS_WINDOW_H

#include "slicer/error.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WINDOW_BLOCK  (UINT64_C(2) << 20) /* of the source, as large as its pages can be; starts at a multiple of it */
#define WINDOW_BEYOND (UINT64_C(16) << 20)

struct window {
	unsigned char *bytes; /* read-only; touching them may raise SIGBUS: guard.h */
	size_t len;
	int fd;
	uint64_t start; /* in the file */
};

/* Bytes of the smallest page. */
uint64_t window_page(void);

/* Map bytes [start, end) of a file, not empty, `start` a multiple of window_page(). 0 or -errno. */
int window_open(struct window *window, int fd, uint64_t start, uint64_t end) SL_MUST_CHECK;
void window_close(struct window *window);

/* Are bytes [start, end) of a file in the page cache, as far as a look at each block can tell? False as well where that is not told:
 * the file is another user's, who lets this one only read it (cachestat(2)). */
bool window_is_cached(int fd, uint64_t start, uint64_t end);

/* Have it read, and wait for it, or for most of it. `large`: its whole blocks as large pages; the kernel may then read as much as
 * WINDOW_BEYOND past the window. What cannot be read shows when it is touched. */
void window_read(const struct window *window, bool large);

#endif
