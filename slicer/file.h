/*
 * file.h - a virtual file: a name, a size, and the pieces that make its bytes.
 */
#ifndef SLICER_FILE_H
#define SLICER_FILE_H

#include "slicer/error.h"
#include "slicer/piece.h"
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct sl_file {
	const char *name; /* within its directory; sub-directories as "a/b" */
	uint64_t size;
	const struct sl_model *model;
	const struct sl_piece *pieces; /* sorted, without gap or overlap: pieces[0].off == 0, the last ends at size */
	uint32_t n_pieces;
	uint32_t identical; /* 1 + index of the shard that has the same bytes, or 0 */
	uint32_t section;   /* weight files: position in the engine's order of execution, for pipelining */
};

/* Where the bytes at an offset are. */
struct sl_extent {
	const struct sl_piece *piece;
	uint64_t skip; /* output bytes of the piece before it */
	uint64_t len;  /* bytes from there to the end of the piece, or of what was asked */
};

/* The extent that begins at `off` and covers at most `len` bytes; .len 0 at or after the end of the file. O(log n). */
struct sl_extent sl_file_map(const struct sl_file *file, uint64_t off, uint64_t len);

/* Read up to `len` bytes at `off` into `buf`: the number of bytes, short only at the end of the file, or -errno: no byte
 * of a failed read may be used. Thread-safe; takes no lock and no memory. */
ssize_t sl_file_read(const struct sl_file *file, void *buf, uint64_t off, size_t len,
		     struct sl_error *err) SL_MUST_CHECK;

#endif
