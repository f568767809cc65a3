/*
 * export.h - files of the tree written into a real directory, by several threads.
 *
 * A file is written as .NAME.partial and renamed when it is complete, with the node's time. A file that is there
 * already is taken for done when its size, its time and samples of its bytes are right: so an interrupted export
 * goes on where it was, and one of another rank, whose files have the same sizes, does not leave the wrong ones.
 */
#ifndef FS_EXPORT_H
#define FS_EXPORT_H

#include "fs/tree.h"
#include "slicer/error.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

struct export_file {
	struct node *node;
	char *path; /* relative to the destination */
	bool done;
};

struct export
{
	struct tree *tree;
	int dest;   /* the directory */
	bool force; /* write what is there already, too */
	bool sync;  /* wait until it is on the disk */
	bool quiet; /* no line for each file: there is a bar */
	struct export_file *files;
	size_t n, cap;
	uint64_t total; /* bytes to write */
	_Atomic size_t next;
	_Atomic uint64_t written;
	_Atomic bool stop;
	pthread_mutex_t lock; /* of the rest */
	pthread_cond_t ended; /* a worker has */
	unsigned running;
	struct sl_error err; /* the first worker's */
};

void export_init(struct export *export, struct tree *tree);
void export_release(struct export *export);

/* Take up a file, or all files below a directory. */
int export_add(struct export *export, struct node *node, struct sl_error *err) SL_MUST_CHECK;

/* Make `dest` and the directories below it; see what is there already; sum up `total`. -ENOSPC when it does not fit. */
int export_prepare(struct export *export, const char *dest, struct sl_error *err) SL_MUST_CHECK;

/* Write. `tick` is called five times a second meanwhile. */
int export_run(struct export *export, unsigned jobs, void (*tick)(const struct export *),
	       struct sl_error *err) SL_MUST_CHECK;

#endif
