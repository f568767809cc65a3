/*
 * stats.h - what a mount has done so far, as the texts of .rankfs/{status,stats,settings,version}.
 *
 * Counted per group: the files of one rank in one layout of an engine ("vllm/tp8", rank 3), or those of source/. Groups
 * are made when their first file is opened, and kept. Counting is relaxed atomics: the figures of one text may be a
 * request apart.
 */
#ifndef FS_STATS_H
#define FS_STATS_H

#include "fs/device.h"
#include "fs/knobs.h"
#include "fs/options.h"
#include "fs/stage.h"
#include "fs/tree.h"
#include "slicer/error.h"
#include <stddef.h>

struct stats;
struct stats_group;

/* What does not change while a mount lives. Everything that it points to must outlive the stats. */
struct stats_setup {
	const struct sl_model *model;
	const struct options *options;
	struct device *device;
	const char *source;	/* absolute */
	const char *mountpoint; /* absolute */
	const char *libfuse;	/* its version */
	unsigned threads;	/* at most */
};

int stats_open(struct stats **out, const struct stats_setup *setup, struct sl_error *err) SL_MUST_CHECK;
void stats_close(struct stats *stats);

/* What came of the kernel's knobs; copied. Until then the texts say that they are unknown. */
void stats_set_knobs(struct stats *stats, const struct knobs *knobs);

/* Where the figures of staging come from; it must outlive what is served. */
void stats_set_stage(struct stats *stats, struct stage *stage);

/* A file has been opened, read, closed. The group of the opening goes to the others; NULL (a file of .rankfs itself, or
 * no memory for the group) is counted nowhere. */
struct stats_group *stats_opened(struct stats *stats, const struct node *node);
void stats_read(struct stats_group *group, size_t n_bytes);
void stats_closed(struct stats_group *group);

/* An open of it is passed through: the kernel reads, and nobody counts. */
void stats_passed(struct stats_group *group);

/* A request of `group` (may be NULL) has failed with that positive errno. */
void stats_failed(struct stats *stats, struct stats_group *group, int errnum);

/* A tree_live_fn whose context is a struct stats. */
char *stats_text(void *stats, const char *what);

#endif
