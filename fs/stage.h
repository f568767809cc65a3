/*
 * stage.h - which files the kernel reads by itself, and making them ready just ahead of their readers.
 *
 * Files that are the source's are passed through as they are. Weight files are materialised in memory (slot.h) when their
 * reader can be foreseen (line.h), by threads of the stage that fill those of several ranks from one pass over the source
 * (fill.h), and passed through then. Every other open is streamed, and always right.
 *
 *      open ──┬─ streamed ── read past the header? ── the next parts are filled
 *             ├─ full: passed through
 *             └─ being filled: answered when it is
 *
 * The kernel cannot mix both ways in one inode: the first open decides, and it holds until the last one ends. All
 * functions are thread-safe.
 */
#ifndef FS_STAGE_H
#define FS_STAGE_H

#include "fs/slot.h"
#include "fs/tree.h"
#include "slicer/error.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define STAGE_SHARE 4 /* of the available memory, when nobody says how much: a quarter */

struct stage;
struct part;

/* One open of a file, embedded in the caller's. */
struct stage_open {
	/* Called from another thread once it is known how the file is served. */
	void (*decided)(struct stage_open *open);
	int backing; /* what the kernel is to read, or 0: the file is streamed */
	int fd;	     /* the same for ourselves; -1 */
	/* Private. */
	struct stage_open *next;
	struct part *part;
	_Atomic bool evident;
};

/* `budget` bytes of `memory` at most; 0 stages nothing. The tree must outlive the stage. Starts no thread. */
int stage_new(struct stage **out, struct tree *tree, uint64_t budget, enum slots_kind memory,
	      struct sl_error *err) SL_MUST_CHECK;

/* The mount answers: see whether the kernel passes files through, and start the threads. `device` is the session's
 * /dev/fuse, or -1 when it is known that it does not, and `why`. */
void stage_start(struct stage *stage, int device, const char *why);

/* How many bytes the kernel may read past what is asked for; until it is known, more than it does. */
void stage_set_read_ahead(struct stage *stage, uint64_t bytes);

/* Stop the threads; opens that wait are answered. Nothing may be opened after. */
void stage_stop(struct stage *stage);
void stage_free(struct stage *stage);

/* Begin an open; `fd` is that of a NODE_SOURCE. True: open->backing is set. False: it will be, see `decided`. */
bool stage_begin(struct stage *stage, struct stage_open *open, const struct node *node, int fd);
/* Bytes of a streamed open have been asked for. */
void stage_read(struct stage *stage, struct stage_open *open, uint64_t off, uint64_t len);
void stage_end(struct stage *stage, struct stage_open *open);

/* Is a file passed through now or, when nobody has it open, would it be? */
bool stage_passes(struct stage *stage, const struct node *node);

struct stage_figures {
	const char *passthrough; /* NULL: yes; else why not */
	const char *staging;	 /* NULL: yes; else why not */
	const char *memory;	 /* that is staged in */
	uint64_t budget, used;	 /* bytes */
	uint64_t n_staged, bytes_staged, n_failed, n_passed;
	unsigned threads;
};

void stage_figures(struct stage *stage, struct stage_figures *figures);

/* A weight file that takes memory, or that somebody has open. */
struct stage_file {
	const char *directory, *name;
	const char *state; /* "filling", "staged", "streamed" (open, and not in memory) */
	uint64_t bytes;	   /* of the whole file */
	unsigned n_open;
	bool passed; /* those that have it open read it by the kernel alone */
};

/* Call `each` for every such file, by rank and in the order of loading, under the stage's lock. */
void stage_each_file(struct stage *stage, void (*each)(void *context, const struct stage_file *file), void *context);

#endif
