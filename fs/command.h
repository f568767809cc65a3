/*
 * command.h - the commands of the one binary: each parses its own arguments and returns an exit code, mount(8)'s.
 */
#ifndef FS_COMMAND_H
#define FS_COMMAND_H

#include "slicer/error.h"

enum exit_code {
	EXIT_OK = 0,
	EXIT_USAGE = 1,	  /* wrong arguments or options, no permission */
	EXIT_SYSTEM = 2,  /* out of memory, a device, a write error */
	EXIT_REFUSED = 32 /* the checkpoint, the layout or the mount is refused */
};

struct command {
	const char *name;
	int (*run)(int argc, char **argv); /* argv[0] is the command's name */
	const char *arguments;		   /* "SOURCE [PATH] [--json]" */
	const char *summary;		   /* one line */
};

/* To add a command: a row in main.c, and a file cmd_NAME.c. */
int cmd_mount(int argc, char **argv);
int cmd_plan(int argc, char **argv);
int cmd_sizes(int argc, char **argv);
int cmd_check(int argc, char **argv);
int cmd_cat(int argc, char **argv);
int cmd_export(int argc, char **argv);
int cmd_status(int argc, char **argv);
int cmd_doctor(int argc, char **argv);
int cmd_list(int argc, char **argv);

/* Print "rankfs: TEXT" and give the exit code for the error: EXIT_REFUSED for EINVAL, ENOENT, ESTALE, EOVERFLOW and
 * whatever else a checkpoint can be refused for, EXIT_SYSTEM for ENOMEM and EIO. */
int command_fail(const struct sl_error *err);

#endif
