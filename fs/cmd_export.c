/*
 * cmd_export.c - rankfs export SOURCE PATH DEST: a real directory of a layout's files, for where nothing can be
 * mounted.
 */
#include "fs/arguments.h"
#include "fs/command.h"
#include "fs/export.h"
#include "fs/print.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { DEFAULT_JOBS = 4, BAR = 30 };

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static double started;

static void no_bar(const struct export *export)
{
	(void)export;
}

/* "[#####     ] 48 %  7.3 of 15.0 GiB  1.1 GiB/s  7 s left" over the last one. */
static void draw_bar(const struct export *export)
{
	uint64_t written = atomic_load_explicit(&export->written, memory_order_relaxed);
	double part = export->total ? (double)written / (double)export->total : 1, seconds = now() - started;
	double rate = seconds > 0 ? (double)written / seconds : 0;
	int filled = (int)(part * BAR);
	char bar[BAR + 1] = "";

	memset(bar, '#', (size_t)(filled < BAR ? filled : BAR));
	fprintf(stderr, "\r[%-*s] %3.0f %%  %s of %s  %s/s", BAR, bar, 100 * part, print_size(written).text,
		print_size(export->total).text, print_size((uint64_t)rate).text);
	if (rate > 0)
		fprintf(stderr, "  %.0f s left\033[K", (double)(export->total - written) / rate);
	fflush(stderr);
}

/* The real path of as much of a path as there is. */
static bool real_ancestor(const char *path, char real[PATH_MAX])
{
	char part[PATH_MAX];
	char *slash;

	snprintf(part, sizeof(part), "%s", path);
	while (!realpath(part, real)) {
		slash = strrchr(part, '/');
		if (!slash)
			return realpath(".", real);
		slash[slash == part] = '\0';
	}
	return true;
}

/* What is exported must not become part of what is shown. */
static int check_dest(const char *source, const char *dest, struct sl_error *err)
{
	char real_source[PATH_MAX], real_dest[PATH_MAX];
	size_t len;

	if (!realpath(source, real_source) || !real_ancestor(dest, real_dest))
		return sl_fail(err, errno, "%s: %s", SL_ESC(dest), strerror(errno));
	len = strlen(real_source);
	if (strncmp(real_source, real_dest, len) == 0 && (real_dest[len] == '\0' || real_dest[len] == '/'))
		return sl_fail(err, EINVAL, "%s lies inside the checkpoint %s: give a place outside of it",
			       SL_ESC(dest), SL_ESC(source));
	return 0;
}

static unsigned default_jobs(void)
{
	long n = sysconf(_SC_NPROCESSORS_ONLN);

	return n < 1 ? 1 : n > DEFAULT_JOBS ? DEFAULT_JOBS : (unsigned)n;
}

static void print_sum(const struct export *export)
{
	uint64_t written = atomic_load(&export->written);
	double seconds = now() - started;
	size_t n_done = 0;

	for (size_t i = 0; i < export->n; i++)
		n_done += export->files[i].done;
	printf("%zu files, %s in %.1f s (%s/s)", export->n - n_done, print_size(written).text, seconds,
	       print_size(seconds > 0 ? (uint64_t)((double)written / seconds) : 0).text);
	if (n_done)
		printf("; %zu were there already", n_done);
	putchar('\n');
}

static int write_all(struct export *export, const struct arguments *arguments, struct sl_error *err)
{
	const char *dest = arguments->positional[2];
	bool bar = isatty(STDERR_FILENO);
	int rc;

	export->force = arguments->force;
	export->sync = arguments->sync;
	export->quiet = bar;
	rc = export_prepare(export, dest, err);
	if (rc)
		return rc;
	started = now();
	rc = export_run(export, arguments->jobs ? arguments->jobs : default_jobs(), bar ? draw_bar : no_bar, err);
	if (bar)
		fputc('\n', stderr);
	if (rc)
		return sl_error_prefix(err, "%s", SL_ESC(dest));
	print_sum(export);
	return 0;
}

static int run(struct target *target, const struct arguments *arguments, struct sl_error *err)
{
	struct export export;
	struct node *node;
	int rc = target_open(target, arguments, err);

	if (rc == 0)
		rc = tree_path(target->tree, arguments->positional[1], &node, err);
	if (rc == 0)
		rc = check_dest(arguments->positional[0], arguments->positional[2], err);
	if (rc)
		return rc;
	target_print_notes(target, stderr);
	export_init(&export, target->tree);
	rc = export_add(&export, node, err);
	if (rc == 0)
		rc = write_all(&export, arguments, err);
	export_release(&export);
	return rc;
}

int cmd_export(int argc, char **argv)
{
	const struct argument_rules rules = { .min = 3,
					      .max = 3,
					      .flags = ARGUMENT_FORCE | ARGUMENT_SYNC | ARGUMENT_JOBS };
	struct arguments arguments;
	struct target target = { 0 };
	struct sl_error err = SL_ERROR_INIT;
	int rc;

	if (arguments_parse(&arguments, argc, argv, &rules, &err))
		return options_fail(&err);
	rc = run(&target, &arguments, &err);
	target_close(&target);
	return rc ? command_fail(&err) : EXIT_OK;
}
