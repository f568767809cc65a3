/*
 * options.h - what `-o` may hold, for every command that takes it: a comma list of name or name=value.
 *
 *      -o tp=8,engine=vllm,part=256M,noexec,x-systemd.automount
 *
 * "\," is a comma and "\\" a backslash within a value. What mount(8) passes on from fstab is accepted: kept for the mount
 * where it means something for a read-only file system, ignored where not. Anything unknown is an error, since a
 * misspelt option that is ignored would be found when it is too late.
 */
#ifndef FS_OPTIONS_H
#define FS_OPTIONS_H

#include "fs/tree.h"
#include "slicer/error.h"
#include "slicer/layout.h"
#include "slicer/model.h"
#include <stdint.h>
#include <stdio.h>

#define OPTIONS_AUTO UINT64_MAX /* of read_ahead_kb, stage_bytes: what suits this machine */

struct options {
	/* How the checkpoint is read and what is shown. */
	uint64_t format;		 /* enum sl_format */
	uint64_t part_bytes;		 /* 0: the default of view.h */
	uint64_t gpu;			 /* 1 + enum sl_gpu; 0: the default of view.h */
	uint64_t device;		 /* enum device_choice, or DEVICE_NUMBER + N */
	uint64_t tp;			 /* show only this many ranks; 0: all that make sense */
	uint64_t engine;		 /* show only this one: 1 + its index in sl_engines; 0: all */
	char layout[SL_LAYOUT_NAME_MAX]; /* "tp8" for tp=8, else "" */
	uint64_t no_cache;		 /* read all headers, and store nothing (cachedir.h) */
	/* How it is mounted; no other command looks at these. */
	uint64_t read_ahead_kb; /* 0: leave what the kernel chose */
	uint64_t threads;	/* 0: by the number of processors */
	uint64_t stage_bytes;	/* of memory, for files ahead of their readers; 0: off */
	uint64_t memory;	/* enum slots_kind: of these files, at best */
	uint64_t no_passthrough;
	uint64_t allow_other, allow_root;
	char mount[1024]; /* what else goes to the mount, still escaped: "noexec,context=…", or "" */
	uint64_t given;	  /* which rows of the table have been given: private */
};

void options_init(struct options *options);

/* Add one argument of -o to what has been given already. -EINVAL with one line that names the option and what it may be;
 * also when an option is given twice with different values. */
int options_parse(struct options *options, const char *text, struct sl_error *err) SL_MUST_CHECK;

/* As command_fail(), for a command line that is wrong: prints "rankfs: TEXT", gives EXIT_USAGE. */
int options_fail(const struct sl_error *err);

/* One line each, for --help. */
void options_help(FILE *out);

struct sl_model_options options_for_model(const struct options *options);

struct sl_view_options options_for_view(const struct options *options);

/* Points into `options` and `mountpoint`. */
struct tree_options options_for_tree(const struct options *options, const char *mountpoint);

#endif
