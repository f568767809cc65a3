/*
 * line.h - the weight files of one rank, in the order in which an engine loads them, and what can be foreseen of it.
 *
 *      parts    0    1    2    3    4    5    6   …
 *               read read │    wanted    │
 *                         pos = 1: was opened last
 *
 * Nothing is foreseen of a rank until one of its files has been read past its header: engines and tools read the headers
 * of everything first. From then on the line is active, and the LINE_AHEAD parts after the one opened last are wanted;
 * after the last comes the first again, for the next load.
 * Opening the next part moves the line on, unless it comes sooner than the last one can have been read.
 *
 * Parts of other files (those of the source, which need no memory) belong to no line. Nothing here locks.
 */
#ifndef FS_LINE_H
#define FS_LINE_H

#include "fs/slot.h"
#include "fs/tree.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define LINE_AHEAD   2			   /* parts that are staged before they are opened */
#define LINE_IDLE_NS UINT64_C(10000000000) /* without a sign of its reader a line claims nothing */

struct stage_open;

enum part_state { PART_EMPTY, PART_FILLING, PART_FULL };

/* A file that can be passed through. */
struct part {
	struct line *line; /* NULL: of the source */
	enum part_state state;
	struct slot *slot;	    /* FILLING, FULL */
	unsigned n_opens;	    /* those that wait included */
	bool passed;		    /* how these are served */
	struct stage_open *waiting; /* for FILLING to end */
	uint64_t tested;	    /* in that search for memory it was found to be held */
	/* Of the source. */
	struct part *next;
	const struct node *node;
	int backing;
};

struct line {
	struct line *next;
	const struct sl_view *view;
	char directory[160]; /* in the mount; for people */
	bool active;
	uint32_t pos;
	uint64_t opened;       /* ns: when pos was answered */
	_Atomic uint64_t seen; /* ns: the last sign of its reader */
	uint64_t served;       /* when a part of it was last staged, on the clock of events */
	uint32_t n_parts;
	struct part parts[];
};

/* For the weight files of a view; freed with free(). NULL without memory. */
struct line *line_new(const struct sl_view *view);

const struct sl_file *part_file(const struct part *part);
uint32_t part_index(const struct part *part);

/* The index of a node's file in its view, or -1: not a weight file. */
int64_t line_index(const struct node *node);

/* A part has been read past its header. */
void line_read(struct line *line, uint32_t index, uint64_t now);

/* A part is being opened. True when that was foreseen. */
bool line_opened(struct line *line, uint32_t index, uint64_t now);

/* Is the part among those that are wanted, or soon will be, staged already or not? */
bool line_claims(const struct line *line, uint32_t index, uint64_t now);

/* Is it wanted: claimed, neither staged nor open, and of at most `max` bytes? */
bool line_wants(const struct line *line, uint32_t index, uint64_t max, uint64_t now);
/* The first such part, or NULL. */
struct part *line_first_wanted(struct line *line, uint64_t max, uint64_t now);

/* How many parts it is after the one that was opened last. */
uint32_t line_ahead(const struct part *part);

/* Do these ranks load the same layers of one model side by side? */
bool line_is_beside(const struct line *a, const struct line *b);

#endif
