/*
 * cmd_status.c - rankfs status MOUNT [--watch] [--json]: what .rankfs/ of a mount says, for people, and for programs.
 *
 * The mount table is asked first: a path that is no rankfs mount gets a sentence and not a missing file. --json is made
 * of .rankfs/settings and the samples of .rankfs/stats.
 */
#include "fs/command.h"
#include "fs/mountinfo.h"
#include "fs/mountpoint.h"
#include "fs/options.h"
#include "fs/print.h"
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct status_request {
	bool watch, json;
	char mountpoint[PATH_MAX];
};

static int read_all(FILE *file, const char *path, char **text, struct sl_error *err)
{
	size_t len = 0, cap = 0;
	size_t n = 0;

	*text = NULL;
	do {
		if (cap - len < 2) {
			char *more = realloc(*text, cap += 16384);

			if (!more)
				return sl_fail(err, ENOMEM, "no memory for %s", path);
			*text = more;
		}
		n = fread(*text + len, 1, cap - len - 1, file);
		len += n;
	} while (n);
	(*text)[len] = '\0';
	return ferror(file) ? sl_fail(err, EIO, "%s: cannot be read: %s", path, strerror(errno)) : 0;
}

/* A file of .rankfs/ whole; malloc'ed. */
static int read_live(const char *mountpoint, const char *name, char **text, struct sl_error *err)
{
	char path[PATH_MAX + 32];
	FILE *file;
	int rc;

	snprintf(path, sizeof(path), "%s/.rankfs/%s", mountpoint, name);
	*text = NULL;
	file = fopen(path, "re");
	if (!file)
		return sl_fail(err, errno, "%s: %s", path, strerror(errno));
	rc = read_all(file, path, text, err);
	fclose(file);
	if (rc) {
		free(*text);
		*text = NULL;
	}
	return rc;
}

static int find_mount(const char *path, char *mountpoint, struct sl_error *err)
{
	struct mountinfo info;
	int rc = mountpoint_check_alive(path, err);

	if (rc)
		return rc;
	if (!realpath(path, mountpoint))
		return sl_fail(err, errno, "%s: %s", path, strerror(errno));
	rc = mountinfo_find(mountpoint, &info, err);
	if (!rc && strcmp(info.fstype, RANKFS_FSTYPE))
		return sl_fail(err, EINVAL, "%s: a mount of type %s, not of rankfs", mountpoint, info.fstype);
	return rc;
}

static int print_text(const struct status_request *request, struct sl_error *err)
{
	char *text;
	int rc = read_live(request->mountpoint, "status", &text, err);

	if (rc)
		return rc;
	fputs(text, stdout);
	free(text);
	return 0;
}

/* key=value lines as members of an object. */
static void print_settings(struct json_writer *json, char *text)
{
	char *line, *value;

	json_begin(json, "settings", '{');
	while ((line = strsep(&text, "\n"))) {
		value = strchr(line, '=');
		if (!value)
			continue;
		*value++ = '\0';
		json_string(json, line, value);
	}
	json_end(json, '}');
}

/* One label, name="value", off the front of `at`; its value unescaped in place. NULL at the end of the labels. */
static char *take_label(char *at, char **name, char **value)
{
	char *to;

	*name = at;
	at = strchr(at, '=');
	if (!at || at[1] != '"')
		return NULL;
	*at = '\0';
	*value = to = at += 2;
	for (; *at && *at != '"'; at++) {
		if (*at == '\\' && at[1])
			*to++ = *++at == 'n' ? '\n' : *at;
		else
			*to++ = *at;
	}
	if (!*at)
		return NULL;
	*to = '\0';
	return at + 1;
}

/* name{label="value",…} 12 as an object. */
static void print_sample(struct json_writer *json, char *line)
{
	char *at = line + strcspn(line, "{ "), *label, *value;
	bool labelled = *at == '{';

	if (!*at)
		return;
	*at++ = '\0';
	json_begin(json, NULL, '{');
	json_string(json, "name", line);
	while (labelled && at && *at != '}') {
		at = take_label(at + (*at == ','), &label, &value);
		if (at)
			json_string(json, label, value);
	}
	if (at)
		json_number(json, "value", (uint64_t)strtod(at + strspn(at, "} "), NULL));
	json_end(json, '}');
}

static void print_samples(struct json_writer *json, char *text)
{
	char *line;

	json_begin(json, "stats", '[');
	while ((line = strsep(&text, "\n")))
		if (*line && *line != '#')
			print_sample(json, line);
	json_end(json, ']');
}

static int print_json(const struct status_request *request, struct sl_error *err)
{
	struct json_writer json;
	char *settings, *stats;
	int rc = read_live(request->mountpoint, "settings", &settings, err);

	if (rc)
		return rc;
	rc = read_live(request->mountpoint, "stats", &stats, err);
	if (!rc) {
		json_init(&json, stdout, 2);
		json_begin(&json, NULL, '{');
		print_settings(&json, settings);
		print_samples(&json, stats);
		json_end(&json, '}');
	}
	free(settings);
	free(stats);
	return rc;
}

static int print_once(const struct status_request *request, struct sl_error *err)
{
	return request->json ? print_json(request, err) : print_text(request, err);
}

/* Once a second, until the mount or the reader of our output is gone. */
static int watch(const struct status_request *request, struct sl_error *err)
{
	bool terminal = isatty(STDOUT_FILENO);
	int rc;

	do {
		if (terminal)
			fputs("\033[H\033[2J", stdout);
		rc = print_once(request, err);
		fflush(stdout);
	} while (!rc && !ferror(stdout) && !sleep(1));
	return rc;
}

static int parse(struct status_request *request, int argc, char **argv, const char **path, struct sl_error *err)
{
	static const struct option long_options[] = {
		{ "watch", no_argument, NULL, 'w' },
		{ "json", no_argument, NULL, 'j' },
		{ NULL, 0, NULL, 0 },
	};
	int flag;

	opterr = 0;
	optind = 0;
	while ((flag = getopt_long(argc, argv, "wj", long_options, NULL)) != -1) {
		if (flag == '?')
			return sl_fail(err, EINVAL, "status: %s: no such option: wanted is MOUNT [--watch] [--json]",
				       SL_ESC(argv[optind - 1]));
		request->watch |= flag == 'w';
		request->json |= flag == 'j';
	}
	if (argc - optind != 1)
		return sl_fail(err, EINVAL, "status: wanted is MOUNT [--watch] [--json]");
	*path = argv[optind];
	return 0;
}

int cmd_status(int argc, char **argv)
{
	struct status_request request = { .watch = false };
	struct sl_error err = SL_ERROR_INIT;
	const char *path = NULL;
	int rc;

	if (parse(&request, argc, argv, &path, &err))
		return options_fail(&err);
	rc = find_mount(path, request.mountpoint, &err);
	if (!rc)
		rc = request.watch ? watch(&request, &err) : print_once(&request, &err);
	return rc ? command_fail(&err) : EXIT_OK;
}
