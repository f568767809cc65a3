/*
 * serve.h - a tree, served through FUSE's low-level interface by several threads, read-only.
 *
 * Nodes live as long as the tree, so their inode numbers are FUSE's, forgetting is nothing, and what the kernel has once
 * been told it may keep for a day: entries, attributes, names that are not there, listings and pages.
 *
 * A read is answered in full or with an errno. The kernel takes a short answer for the end of the file, and shortens it
 * for every process.
 */
#ifndef FS_SERVE_H
#define FS_SERVE_H

#include "fs/stage.h"
#include "fs/stats.h"
#include "fs/tree.h"
#include "slicer/error.h"
#include <stdbool.h>

/* How the bytes of a file reach its reader. A file keeps one mode from its first open to its last close: the kernel
 * cannot mix them in one inode. */
enum serve_mode {
	SERVE_STREAMED, /* computed as it is read, kept in the page cache */
	SERVE_LIVE,	/* a text that changes: past the page cache, of unknown size */
	SERVE_PASSED,	/* read by the kernel from another file: one of the source, or one in memory (stage.h) */
	N_SERVE_MODES
};

/* How a file is served that the stage does not pass through. */
enum serve_mode serve_mode(const struct node *node);
const char *serve_mode_name(enum serve_mode mode);

struct serve;

struct serve_setup {
	struct tree *tree;
	struct stats *stats;
	struct stage *stage;
	const char *source;	/* what mount(8) shows as the device */
	const char *mountpoint; /* absolute */
	const char *mount;	/* more options for the mount, escaped: "noexec,allow_other", or "" */
	unsigned threads;	/* at most */
	bool debug;		/* libfuse prints every request */
};

/* Mount. Nothing is answered before serve_run(). What setup points to must outlive it. -EINVAL when libfuse refuses the
 * options, -ENODEV when the mount fails; the text includes what libfuse said. */
int serve_open(struct serve **out, const struct serve_setup *setup, struct sl_error *err) SL_MUST_CHECK;

/* Answer until it is unmounted or SIGINT, SIGTERM or SIGHUP comes. Threads that the caller has made must block these. */
int serve_run(struct serve *serve, struct sl_error *err) SL_MUST_CHECK;

/* Once the mount answers: the session's device, for stage_start(), or -1 and why the kernel passes nothing through. */
int serve_device(const struct serve *serve, const char **why);

/* Unmount if it still is. Readers that have files open get ENOTCONN. */
void serve_unmount(struct serve *serve);
void serve_close(struct serve *serve);

/* Threads that serve when nobody says how many. */
unsigned serve_default_threads(void);

/* The version of libfuse that this program runs with, and whether it was built with one that knows passthrough. */
const char *serve_libfuse_version(void);
bool serve_libfuse_has_passthrough(void);

#endif
