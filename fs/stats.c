/*
 * stats.c - groups of files with their counters, and four texts made of them.
 *
 * GB/s is that of the last load: bytes since a group was last idle for IDLE_NS, over the time from the first to the last
 * of these reads. An average over the life of a mount would say nothing after a night without a reader.
 */
#include "fs/stats.h"
#include "fs/print.h"
#include "slicer/layout.h"
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>

#define IDLE_NS	 UINT64_C(5000000000)
#define N_ERRNOS 256

#define ADD(counter, n) atomic_fetch_add_explicit(&(counter), (n), memory_order_relaxed)
#define GET(counter)	atomic_load_explicit(&(counter), memory_order_relaxed)
#define SET(counter, n) atomic_store_explicit(&(counter), (n), memory_order_relaxed)

struct stats_group {
	struct stats_group *next; /* in the order in which they were first opened */
	char directory[128];	  /* "vllm/tp8", "source" */
	int rank, stage;	  /* -1: files of no rank */
	_Atomic uint64_t n_opens, n_passed, n_open, n_reads, n_bytes, n_errors;
	_Atomic uint64_t burst_start, burst_end, burst_bytes; /* ns of CLOCK_MONOTONIC */
};

struct stats {
	struct stats_setup setup;
	uint64_t started; /* ns */
	char kernel[65];
	pthread_mutex_t lock; /* of the list, not of the counters, and of knobs */
	struct stats_group *groups;
	struct knobs knobs;
	struct stage *stage;		   /* NULL: none yet */
	_Atomic uint64_t errors[N_ERRNOS]; /* by errno; [0] those out of range */
};

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

int stats_open(struct stats **out, const struct stats_setup *setup, struct sl_error *err)
{
	struct stats *stats = calloc(1, sizeof(*stats));
	struct utsname system;

	*out = stats;
	if (!stats)
		return sl_fail(err, ENOMEM, "no memory for the statistics");
	stats->setup = *setup;
	stats->started = now_ns();
	pthread_mutex_init(&stats->lock, NULL);
	uname(&system);
	snprintf(stats->kernel, sizeof(stats->kernel), "%s", system.release);
	return 0;
}

void stats_close(struct stats *stats)
{
	struct stats_group *next;

	if (!stats)
		return;
	for (struct stats_group *group = stats->groups; group; group = next) {
		next = group->next;
		free(group);
	}
	pthread_mutex_destroy(&stats->lock);
	free(stats);
}

void stats_set_knobs(struct stats *stats, const struct knobs *knobs)
{
	pthread_mutex_lock(&stats->lock);
	stats->knobs = *knobs;
	pthread_mutex_unlock(&stats->lock);
}

void stats_set_stage(struct stats *stats, struct stage *stage)
{
	pthread_mutex_lock(&stats->lock);
	stats->stage = stage;
	pthread_mutex_unlock(&stats->lock);
}

/* The part of a path that names its group: the engine and the layout, or the first name. */
static void group_key(const struct node *node, struct stats_group *key)
{
	char path[4096];
	const char *slash, *end;

	tree_node_path(node, path, sizeof(path));
	slash = strchr(path, '/');
	end = slash && node->view ? strchr(slash + 1, '/') : slash;
	snprintf(key->directory, sizeof(key->directory), "%.*s", end ? (int)(end - path) : (int)strlen(path), path);
	key->rank = node->view ? (int)node->view->rank : -1;
	key->stage = node->view ? (int)node->view->stage : -1;
}

/* Under the lock. */
static struct stats_group *find_or_add(struct stats *stats, const struct stats_group *key)
{
	struct stats_group **at = &stats->groups;

	for (; *at; at = &(*at)->next)
		if ((*at)->rank == key->rank && (*at)->stage == key->stage && !strcmp((*at)->directory, key->directory))
			return *at;
	*at = calloc(1, sizeof(**at));
	if (*at) {
		memcpy((*at)->directory, key->directory, sizeof(key->directory));
		(*at)->rank = key->rank;
		(*at)->stage = key->stage;
	}
	return *at;
}

struct stats_group *stats_opened(struct stats *stats, const struct node *node)
{
	struct stats_group key, *group;

	if (node->kind == NODE_LIVE)
		return NULL;
	group_key(node, &key);
	pthread_mutex_lock(&stats->lock);
	group = find_or_add(stats, &key);
	pthread_mutex_unlock(&stats->lock);
	if (group) {
		ADD(group->n_opens, 1);
		ADD(group->n_open, 1);
	}
	return group;
}

void stats_read(struct stats_group *group, size_t n_bytes)
{
	uint64_t now = now_ns();

	if (!group)
		return;
	if (now - GET(group->burst_end) > IDLE_NS) {
		SET(group->burst_start, now);
		SET(group->burst_bytes, 0);
	}
	SET(group->burst_end, now);
	ADD(group->burst_bytes, n_bytes);
	ADD(group->n_reads, 1);
	ADD(group->n_bytes, n_bytes);
}

void stats_closed(struct stats_group *group)
{
	if (group)
		ADD(group->n_open, (uint64_t)-1);
}

void stats_passed(struct stats_group *group)
{
	if (group)
		ADD(group->n_passed, 1);
}

void stats_failed(struct stats *stats, struct stats_group *group, int errnum)
{
	ADD(stats->errors[errnum > 0 && errnum < N_ERRNOS ? errnum : 0], 1);
	if (group)
		ADD(group->n_errors, 1);
}

static double gigabytes_per_second(struct stats_group *group)
{
	uint64_t start = GET(group->burst_start), end = GET(group->burst_end);

	return end > start ? (double)GET(group->burst_bytes) / (double)(end - start) : 0;
}

/* ---- what is known of the mount, under the lock ---- */

static struct stage_figures figures_of(struct stats *stats)
{
	struct stage_figures figures = { .passthrough = "nothing is served yet" };

	if (stats->stage)
		stage_figures(stats->stage, &figures);
	return figures;
}

static void print_stage(FILE *out, struct stats *stats)
{
	struct stage_figures f = figures_of(stats);

	fprintf(out, "passthrough: %s%s%s\n", f.passthrough ? "no (" : "yes", f.passthrough ? f.passthrough : "",
		f.passthrough ? ")" : "");
	if (f.staging)
		fprintf(out, "staging: no (%s)\n", f.staging);
	else
		fprintf(out, "staging: %s of %s used (%s), %u threads; %s files, %s; %s failed\n",
			print_size(f.used).text, print_size(f.budget).text, f.memory, f.threads,
			print_count(f.n_staged).text, print_size(f.bytes_staged).text, print_count(f.n_failed).text);
}

static void print_knob(FILE *out, const struct knob *knob)
{
	if (!knob->name)
		return;
	fprintf(out, "%s: ", knob->name);
	if (knob->value)
		fprintf(out, "%" PRIu64, knob->value);
	else
		fprintf(out, "unknown");
	if (knob->why[0])
		fprintf(out, " (%s)", knob->why);
	fputc('\n', out);
}

static void print_duration(FILE *out, uint64_t seconds)
{
	fprintf(out, "%" PRIu64 "d %02" PRIu64 ":%02" PRIu64 ":%02" PRIu64, seconds / 86400, seconds / 3600 % 24,
		seconds / 60 % 60, seconds % 60);
}

static void print_rank(char *buf, size_t size, int rank)
{
	if (rank < 0)
		snprintf(buf, size, "-");
	else
		snprintf(buf, size, "%d", rank);
}

/* By its opens: a load begins with a file that is streamed. */
static const char *mode_of(struct stats_group *group)
{
	uint64_t n_passed = GET(group->n_passed);

	return !n_passed ? "streamed" : n_passed == GET(group->n_opens) ? "passed" : "both";
}

static void fill_row(struct table *table, struct stats_group *group)
{
	char rank[16], stage[16];

	print_rank(rank, sizeof(rank), group->rank);
	print_rank(stage, sizeof(stage), group->stage);
	table_cell(table, "%s", group->directory);
	table_cell(table, "%s", rank);
	table_cell(table, "%s", stage);
	table_cell(table, "%s", print_count(GET(group->n_opens)).text);
	table_cell(table, "%s", print_count(GET(group->n_passed)).text);
	table_cell(table, "%s", print_count(GET(group->n_open)).text);
	table_cell(table, "%s", print_count(GET(group->n_reads)).text);
	table_cell(table, "%s", print_size(GET(group->n_bytes)).text);
	table_cell(table, "%s", print_count(GET(group->n_errors)).text);
	table_cell(table, "%.2f", gigabytes_per_second(group));
	table_cell(table, "%s", mode_of(group));
}

static void print_groups(FILE *out, struct stats *stats)
{
	static const char *const heads[] = { "directory", ">rank",  ">stage",  ">opens", ">passed", ">open",
					     ">reads",	  ">bytes", ">errors", ">GB/s",	 "mode" };
	struct sl_error err = SL_ERROR_INIT;
	struct table table;

	if (!stats->groups) {
		fprintf(out, "No file has been opened yet.\n");
		return;
	}
	table_init(&table, heads, sizeof(heads) / sizeof(heads[0]));
	for (struct stats_group *group = stats->groups; group; group = group->next)
		fill_row(&table, group);
	if (table_print(&table, out, TABLE_PLAIN, &err))
		fprintf(out, "%s\n", err.text);
	table_release(&table);
}

static void fill_file_row(void *context, const struct stage_file *file)
{
	struct table *table = context;

	table_cell(table, "%s/%s", file->directory, file->name);
	table_cell(table, "%s", file->state);
	table_cell(table, "%s", print_size(file->bytes).text);
	table_cell(table, "%u", file->n_open);
	table_cell(table, "%s", !file->n_open ? "-" : file->passed ? "passed" : "streamed");
}

/* What is in memory or open now. */
static void print_files(FILE *out, struct stats *stats)
{
	static const char *const heads[] = { "file", "state", ">bytes", ">open", "mode" };
	struct sl_error err = SL_ERROR_INIT;
	struct table table;

	if (!stats->stage)
		return;
	table_init(&table, heads, sizeof(heads) / sizeof(heads[0]));
	stage_each_file(stats->stage, fill_file_row, &table);
	if (table.n_cells) {
		fputc('\n', out);
		if (table_print(&table, out, TABLE_PLAIN, &err))
			fprintf(out, "%s\n", err.text);
	}
	table_release(&table);
}

static void print_errors(FILE *out, struct stats *stats)
{
	for (int i = 0; i < N_ERRNOS; i++)
		if (GET(stats->errors[i]))
			fprintf(out, "failed with %s: %s requests\n", i ? strerrorname_np(i) : "another errno",
				print_count(GET(stats->errors[i])).text);
}

static void print_status(FILE *out, struct stats *stats)
{
	const struct stats_setup *setup = &stats->setup;
	char text[600];

	fprintf(out, "rankfs %s: %s on %s\n", RANKFS_VERSION, setup->source, setup->mountpoint);
	fprintf(out, "up: ");
	print_duration(out, (now_ns() - stats->started) / 1000000000);
	fprintf(out, "\nkernel: %s\nlibfuse: %s\nthreads: %u\n", stats->kernel, setup->libfuse, setup->threads);
	fprintf(out, "computing: %s\n", device_text(setup->device, text, sizeof(text)));
	print_stage(out, stats);
	for (int i = 0; i < N_KNOBS; i++)
		print_knob(out, &stats->knobs.knobs[i]);
	print_errors(out, stats);
	fputc('\n', out);
	print_groups(out, stats);
	print_files(out, stats);
}

/* ---- Prometheus's text format ---- */

/* A label's value: backslash, quote and newline are escaped. */
static void print_label(FILE *out, const char *name, const char *value)
{
	fprintf(out, "%s=\"", name);
	for (; *value; value++) {
		if (*value == '\n')
			fputs("\\n", out);
		else
			fprintf(out, "%s%c", strchr("\\\"", *value) ? "\\" : "", *value);
	}
	fputc('"', out);
}

static void print_metric_head(FILE *out, const char *name, const char *type, const char *help)
{
	fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void print_sample(FILE *out, const char *name, struct stats_group *group, double value)
{
	fprintf(out, "%s{", name);
	print_label(out, "directory", group->directory);
	if (group->rank >= 0)
		fprintf(out, ",rank=\"%d\",stage=\"%d\"", group->rank, group->stage);
	fprintf(out, "} %.15g\n", value);
}

/* To add a figure of each group: a row. */
static const struct metric {
	const char *name, *type, *help;
	size_t counter;
} metrics[] = {
	{ "rankfs_opens_total", "counter", "Files opened.", offsetof(struct stats_group, n_opens) },
	{ "rankfs_passed_opens_total", "counter", "Of these: passed through.", offsetof(struct stats_group, n_passed) },
	{ "rankfs_open_files", "gauge", "Files open now.", offsetof(struct stats_group, n_open) },
	{ "rankfs_reads_total", "counter", "Read requests answered.", offsetof(struct stats_group, n_reads) },
	{ "rankfs_read_bytes_total", "counter", "Bytes of these.", offsetof(struct stats_group, n_bytes) },
	{ "rankfs_failed_reads_total", "counter", "Requests that failed.", offsetof(struct stats_group, n_errors) },
};

static void print_metric(FILE *out, struct stats *stats, const struct metric *metric)
{
	print_metric_head(out, metric->name, metric->type, metric->help);
	for (struct stats_group *group = stats->groups; group; group = group->next) {
		_Atomic uint64_t *counter = (_Atomic uint64_t *)((char *)group + metric->counter);

		print_sample(out, metric->name, group, (double)GET(*counter));
	}
}

static void print_speeds(FILE *out, struct stats *stats)
{
	print_metric_head(out, "rankfs_read_bytes_per_second", "gauge", "Speed of the last load.");
	for (struct stats_group *group = stats->groups; group; group = group->next)
		print_sample(out, "rankfs_read_bytes_per_second", group, gigabytes_per_second(group) * 1e9);
}

static void print_error_counts(FILE *out, struct stats *stats)
{
	print_metric_head(out, "rankfs_errors_total", "counter", "Failed requests by errno.");
	for (int i = 0; i < N_ERRNOS; i++)
		if (GET(stats->errors[i]))
			fprintf(out, "rankfs_errors_total{errno=\"%s\"} %" PRIu64 "\n",
				i ? strerrorname_np(i) : "other", GET(stats->errors[i]));
}

static void print_info(FILE *out, struct stats *stats)
{
	struct stage_figures figures = figures_of(stats);

	print_metric_head(out, "rankfs_info", "gauge", "What serves, and with which settings.");
	fprintf(out, "rankfs_info{");
	print_label(out, "version", RANKFS_VERSION);
	fputc(',', out);
	print_label(out, "kernel", stats->kernel);
	fputc(',', out);
	print_label(out, "libfuse", stats->setup.libfuse);
	fprintf(out, ",threads=\"%u\"", stats->setup.threads);
	for (int i = 0; i < N_KNOBS; i++)
		if (stats->knobs.knobs[i].name)
			fprintf(out, ",%s=\"%" PRIu64 "\"", stats->knobs.knobs[i].name, stats->knobs.knobs[i].value);
	fprintf(out, ",passthrough=\"%s\",", figures.passthrough ? "no" : "yes");
	print_label(out, "why", figures.passthrough ? figures.passthrough : "");
	fprintf(out, "} 1\n");
}

/* To add a figure of staging: a row. */
static const struct stage_metric {
	const char *name, *type, *help;
	size_t figure;
} stage_metrics[] = {
	{ "rankfs_stage_budget_bytes", "gauge", "Memory for staged files.", offsetof(struct stage_figures, budget) },
	{ "rankfs_stage_used_bytes", "gauge", "Of it taken.", offsetof(struct stage_figures, used) },
	{ "rankfs_staged_files_total", "counter", "Files staged.", offsetof(struct stage_figures, n_staged) },
	{ "rankfs_staged_bytes_total", "counter", "Bytes of these.", offsetof(struct stage_figures, bytes_staged) },
	{ "rankfs_failed_stages_total", "counter", "Files that could not be.",
	  offsetof(struct stage_figures, n_failed) },
};

static void print_stage_metrics(FILE *out, struct stats *stats)
{
	struct stage_figures figures = figures_of(stats);

	for (size_t i = 0; i < sizeof(stage_metrics) / sizeof(stage_metrics[0]); i++) {
		const struct stage_metric *metric = &stage_metrics[i];
		const uint64_t *figure = (const uint64_t *)((const char *)&figures + metric->figure);

		print_metric_head(out, metric->name, metric->type, metric->help);
		fprintf(out, "%s %" PRIu64 "\n", metric->name, *figure);
	}
}

static void print_file_label(FILE *out, const char *name, const struct stage_file *file)
{
	fprintf(out, "%s{", name);
	print_label(out, "directory", file->directory);
	fputc(',', out);
	print_label(out, "file", file->name);
}

static void print_file_bytes(void *context, const struct stage_file *file)
{
	FILE *out = context;

	print_file_label(out, "rankfs_file_bytes", file);
	fputc(',', out);
	print_label(out, "state", file->state);
	fprintf(out, "} %" PRIu64 "\n", file->bytes);
}

static void print_file_opens(void *context, const struct stage_file *file)
{
	FILE *out = context;

	print_file_label(out, "rankfs_file_open", file);
	fprintf(out, "} %u\n", file->n_open);
}

static void print_file_metrics(FILE *out, struct stats *stats)
{
	print_metric_head(out, "rankfs_file_bytes", "gauge", "Weight files that are staged or open: their size.");
	if (stats->stage)
		stage_each_file(stats->stage, print_file_bytes, out);
	print_metric_head(out, "rankfs_file_open", "gauge", "By how many they are open.");
	if (stats->stage)
		stage_each_file(stats->stage, print_file_opens, out);
}

static void print_stats(FILE *out, struct stats *stats)
{
	print_info(out, stats);
	print_metric_head(out, "rankfs_uptime_seconds", "gauge", "Since the mount.");
	fprintf(out, "rankfs_uptime_seconds %" PRIu64 "\n", (now_ns() - stats->started) / 1000000000);
	for (size_t i = 0; i < sizeof(metrics) / sizeof(metrics[0]); i++)
		print_metric(out, stats, &metrics[i]);
	print_speeds(out, stats);
	print_stage_metrics(out, stats);
	print_file_metrics(out, stats);
	print_error_counts(out, stats);
}

static void print_settings(FILE *out, struct stats *stats)
{
	const struct stats_setup *setup = &stats->setup;
	const struct options *options = setup->options;
	char text[600];

	fprintf(out, "source=%s\nmountpoint=%s\n", setup->source, setup->mountpoint);
	fprintf(out, "format=%s\n", setup->model->shards.format == SL_FORMAT_MISTRAL ? "mistral" : "hf");
	fprintf(out, "engine=%s\n", options->engine ? sl_engines[options->engine - 1].name : "");
	fprintf(out, "layout=%s\n", options->layout);
	fprintf(out, "part=%" PRIu64 "\n", options->part_bytes);
	fprintf(out, "gpu=%s\n", sl_gpu_names[options->gpu ? options->gpu - 1 : SL_SM90]);
	fprintf(out, "device=%s\n", device_text(setup->device, text, sizeof(text)));
	if (options->read_ahead_kb != OPTIONS_AUTO)
		fprintf(out, "ra=%" PRIu64 "\n", options->read_ahead_kb);
	fprintf(out, "threads=%u\n", setup->threads);
	fprintf(out, "stage=%" PRIu64 "\n", figures_of(stats).budget);
	fprintf(out, "nocache=%d\n", options->no_cache != 0);
	fprintf(out, "mount=%s\n", options->mount);
	for (int i = 0; i < N_KNOBS; i++)
		if (stats->knobs.knobs[i].name)
			fprintf(out, "%s=%" PRIu64 "\n", stats->knobs.knobs[i].name, stats->knobs.knobs[i].value);
}

static void print_version(FILE *out, struct stats *stats)
{
	fprintf(out, "rankfs %s\nlibfuse %s\nkernel %s\n", RANKFS_VERSION, stats->setup.libfuse, stats->kernel);
}

/* To add a file to .rankfs/: a row here and its name in tree.c. */
static const struct live_text {
	const char *name;
	void (*print)(FILE *out, struct stats *stats);
} texts[] = {
	{ "status", print_status },
	{ "stats", print_stats },
	{ "settings", print_settings },
	{ "version", print_version },
};

char *stats_text(void *context, const char *what)
{
	struct stats *stats = context;
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	if (!out)
		return NULL;
	pthread_mutex_lock(&stats->lock);
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		if (!strcmp(texts[i].name, what))
			texts[i].print(out, stats);
	pthread_mutex_unlock(&stats->lock);
	if (fclose(out)) {
		free(text);
		return NULL;
	}
	return text;
}
