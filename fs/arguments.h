/*
 * arguments.h - what the commands that look at a checkpoint share: their arguments, and opening what these name.
 */
#ifndef FS_ARGUMENTS_H
#define FS_ARGUMENTS_H

#include "fs/device.h"
#include "fs/options.h"
#include "fs/tree.h"
#include "slicer/error.h"
#include <stdbool.h>
#include <stdio.h>

/* Flags that a command takes beside -o OPTIONS. */
enum argument_flags {
	ARGUMENT_JSON = 1,  /* --json */
	ARGUMENT_FORCE = 2, /* --force */
	ARGUMENT_JOBS = 4,  /* -j N, --jobs N */
	ARGUMENT_SYNC = 8,  /* --sync */
};

enum { MAX_POSITIONAL = 3, MAX_JOBS = 256 };

struct arguments {
	struct options options;
	const char *positional[MAX_POSITIONAL]; /* those that were not given are NULL */
	bool json, force, sync;
	unsigned jobs; /* 0: not given */
};

struct argument_rules {
	int min, max; /* positional arguments, at most MAX_POSITIONAL */
	unsigned flags;
};

/* -EINVAL with one line for whatever the command does not take. */
int arguments_parse(struct arguments *arguments, int argc, char **argv, const struct argument_rules *rules,
		    struct sl_error *err) SL_MUST_CHECK;

/* What a command is about: an open checkpoint and its tree, and who computes. */
struct target {
	struct device *device;
	struct sl_model *model;
	struct tree *tree;
};

/* Open what positional[0] names. target_close() also after a failure. */
int target_open(struct target *target, const struct arguments *arguments, struct sl_error *err) SL_MUST_CHECK;
void target_close(struct target *target);

/* "LlamaForCausalLM", or the family where the configuration names none. */
const char *target_architecture(const struct target *target);

/* "note: …" lines. */
void target_print_notes(const struct target *target, FILE *out);

#endif
