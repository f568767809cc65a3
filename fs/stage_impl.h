/*
 * stage_impl.h - what stage.c and stage_fill.c share. All of it is under the stage's lock.
 */
#ifndef FS_STAGE_IMPL_H
#define FS_STAGE_IMPL_H

#include "fs/line.h"
#include "fs/slot.h"
#include "fs/stage.h"
#include <pthread.h>

#define STAGE_FILLERS_MAX 8 /* threads that fill at the same time */
#define STAGE_READERS	  6 /* more of them, for those that wait for a disk */

struct stage {
	struct tree *tree;
	bool staging; /* with a budget */
	pthread_mutex_t lock;
	pthread_cond_t work; /* units, a batch, or memory for one */
	pthread_t threads[STAGE_FILLERS_MAX + STAGE_READERS];
	unsigned n_threads;
	unsigned n_fillers, n_filling; /* threads that may fill at once, and that do */
	bool stopping, starved;
	int device; /* -1: nothing is passed through */
	_Atomic uint64_t read_ahead;
	char passthrough_why[200];
	struct slots *slots;
	struct line *lines;
	struct part *passed; /* files of the source that are open */
	struct batch *batches;
	uint64_t clock; /* of events */
	uint64_t bytes_filling;
	uint64_t n_staged, bytes_staged, n_failed, n_passed;
};

/* ns of CLOCK_MONOTONIC. */
uint64_t stage_now(void);

/* Opens that were waiting for a part that is FULL, or EMPTY again: returns them, decided, for stage_answer(), which is
 * called without the lock. */
struct stage_open *stage_decide_waiting(struct stage *stage, struct part *part);
void stage_answer(struct stage_open *open);

/* Give an EMPTY part memory and queue its filling, together with that of the ranks beside it. False: there is no memory. */
bool stage_queue(struct stage *stage, struct part *part);

/* What the threads run: fill what is queued, and queue what is wanted. */
void *stage_fill_thread(void *stage);

/* Give up what is queued still; without threads. */
void stage_drop_batches(struct stage *stage);

#endif
