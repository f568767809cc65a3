/*
 * main.c - which command is meant. What is none is a mount: rankfs SOURCE MOUNTPOINT. A checkpoint in a directory
 * named like a command is given as ./plan.
 */
#include "fs/command.h"
#include "fs/print.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* clang-format off */
/* To add a command: a row, and a file cmd_NAME.c. Those without a summary are other spellings. */
static const struct command commands[] = {
	{ "mount",     cmd_mount,  "SOURCE MOUNTPOINT [-o OPTIONS] [-f] [-d]",
	  "show the files of each rank of each engine (the word 'mount' may be left out)" },
	{ "plan",      cmd_plan,   "SOURCE [PATH] [--json] [-o OPTIONS]",
	  "what each file of a directory will hold, and from where" },
	{ "sizes",     cmd_sizes,  "SOURCE [--json] [-o OPTIONS]",
	  "bytes per rank for each layout: which one fits the GPUs?" },
	{ "check",     cmd_check,  "SOURCE [PATH] [--json] [-o OPTIONS]",
	  "is every tensor accounted for, every scale a number?" },
	{ "cat",       cmd_cat,    "SOURCE PATH [-o OPTIONS]",
	  "one virtual file to the standard output; no mount" },
	{ "export",    cmd_export, "SOURCE PATH DEST [-j JOBS] [--force] [--sync] [-o OPTIONS]",
	  "a real directory of those files; run it again to go on" },
	{ "status",    cmd_status, "MOUNTPOINT [--watch] [--json]",
	  "what each rank has loaded so far" },
	{ "doctor",    cmd_doctor, "[--json]",
	  "what this machine allows, and what to do about it" },
	{ "list",      cmd_list,   "[--json]",
	  "families, engines, dtypes: what works, and what is refused" },
	{ "--list",    cmd_list,   "[--json]", NULL },
};
/* clang-format on */

enum { N_COMMANDS = sizeof(commands) / sizeof(commands[0]) };

static const struct command *find_command(const char *name)
{
	for (size_t i = 0; i < N_COMMANDS; i++) {
		if (strcmp(commands[i].name, name) == 0)
			return &commands[i];
	}
	return NULL;
}

static void print_usage(FILE *out)
{
	fputs("rankfs shows a checkpoint as the files that each rank of an inference engine wants.\n\n"
	      "usage: rankfs SOURCE MOUNTPOINT [-o OPTIONS]\n"
	      "       rankfs COMMAND …\n\n",
	      out);
	for (size_t i = 0; i < N_COMMANDS; i++) {
		if (commands[i].summary)
			fprintf(out, "    %s%s%s %s\n        %s\n", print_colour(out, COLOUR_BOLD), commands[i].name,
				print_colour(out, COLOUR_OFF), commands[i].arguments, commands[i].summary);
	}
	fputs("\n'rankfs help COMMAND' tells more; rankfs(1) all.\n", out);
}

/* The mount's help has its options, so it prints its own. */
static int help(const struct command *command)
{
	char mount[] = "mount", flag[] = "--help";
	char *argv[] = { mount, flag, NULL };

	if (command->run == cmd_mount)
		return cmd_mount(2, argv);
	printf("usage: rankfs %s %s\n\n    %s\n", command->name, command->arguments,
	       command->summary ? command->summary : find_command(command->name + 2)->summary);
	return EXIT_OK;
}

static int help_on(const char *name)
{
	const struct command *command = name ? find_command(name) : NULL;

	if (command)
		return help(command);
	if (!name) {
		print_usage(stdout);
		return EXIT_OK;
	}
	fprintf(stderr, "rankfs: '%s' is no command ('rankfs help' lists them)\n", SL_ESC(name));
	return EXIT_USAGE;
}

static bool is_help(const char *arg)
{
	return strcmp(arg, "-h") == 0 || strcmp(arg, "--help") == 0;
}

static bool wants_help(int argc, char **argv)
{
	for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
		if (is_help(argv[i]))
			return true;
	}
	return false;
}

static int run(int argc, char **argv)
{
	const struct command *command = argc > 1 ? find_command(argv[1]) : NULL;

	if (argc < 2) {
		print_usage(stderr);
		return EXIT_USAGE;
	}
	if (is_help(argv[1]) || strcmp(argv[1], "help") == 0)
		return help_on(argc > 2 ? argv[2] : NULL);
	if (!command)
		return cmd_mount(argc, argv);
	if (wants_help(argc - 1, argv + 1))
		return help(command);
	return command->run(argc - 1, argv + 1);
}

/* What was printed and could not be written is known at the latest here. A reader that has seen enough is no error. */
static int flush(int code)
{
	if (fflush(stdout) == 0 && !ferror(stdout))
		return code;
	if (errno == EPIPE)
		return code;
	fprintf(stderr, "rankfs: standard output: %s\n", strerror(errno));
	return code ? code : EXIT_SYSTEM;
}

int main(int argc, char **argv)
{
	return flush(run(argc, argv));
}
