/*
 * copy.h - all bytes of an open file of the tree into a descriptor: for `cat` and `export`.
 *
 * Long runs that are copied as they are go from file to file, or from file to pipe, inside the kernel; everything
 * else through one buffer.
 */
#ifndef FS_COPY_H
#define FS_COPY_H

#include "fs/tree.h"
#include "slicer/error.h"
#include <stdbool.h>
#include <stdint.h>

struct copier {
	int out;
	bool to_pipe, to_file;
	bool in_kernel; /* until the kernel says that it cannot */
	unsigned char *buf;
	/* Called with the bytes written since the last call; false stops with -ECANCELED. May be NULL. */
	bool (*progress)(void *context, uint64_t bytes);
	void *context;
};

/* `out` stays the caller's; it may be changed between files. */
int copier_init(struct copier *copier, int out, struct sl_error *err) SL_MUST_CHECK;
void copier_set_out(struct copier *copier, int out);
void copier_release(struct copier *copier);

/* Copy. -EPIPE without a text when nobody reads the pipe any more. */
int copier_run(struct copier *copier, struct handle *handle, struct sl_error *err) SL_MUST_CHECK;

#endif
