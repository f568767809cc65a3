/*
 * fill.h - making the bytes of several files at once, in memory, from one pass over the source.
 *
 * A fill is cut into units of work, which any threads may do in any order. Copied pieces are sorted by where they are in
 * the source; pieces that lie side by side there, or interleave as the column slices of several ranks do, become one
 * stretch, and a unit is a window of a stretch:
 *
 *      source   ───────[ a0 b0 a1 b1 a2 b2 … │ window │ … ]──────
 *                          │  └─────────┐
 *      targets    rank a: [ a0 a1 a2 … ] rank b: [ b0 b1 b2 … ]
 *
 * so each source page is read once for all of them. Whatever else a piece is (computed, zero, data, runs far apart) is
 * made by sl_piece_read(), a few MiB a unit.
 *
 * A source that shrinks or fails under a mapping raises SIGBUS: it is caught for these copies alone, and becomes EIO.
 */
#ifndef FS_FILL_H
#define FS_FILL_H

#include "slicer/error.h"
#include "slicer/file.h"
#include "slicer/model.h"
#include <stdbool.h>
#include <stddef.h>

struct fill_target {
	const struct sl_file *file;
	unsigned char *bytes; /* file->size of them */
};

struct fill;

/* Cut the work of `n` targets, files of one model, into units. guard_install() must have been called. */
int fill_open(struct fill **out, const struct sl_model *model, const struct fill_target *targets, size_t n,
	      struct sl_error *err) SL_MUST_CHECK;
void fill_close(struct fill *fill);

size_t fill_n_units(const struct fill *fill);

/* Is it a window of which something is not in the page cache, or may not be? Thread-safe. */
bool fill_must_read(const struct fill *fill, size_t unit);
/* Read it into the page cache first, which mostly waits for a disk; nothing but speed depends on it. Thread-safe. */
void fill_read(const struct fill *fill, size_t unit);

/* Do one. Thread-safe. -EIO or -ESTALE: no byte of any target may be used. */
int fill_unit(struct fill *fill, size_t unit, struct sl_error *err) SL_MUST_CHECK;

/* When all units are done: is the source still what it was? Only then the bytes are right. */
int fill_verify(const struct fill *fill, struct sl_error *err) SL_MUST_CHECK;

#endif
