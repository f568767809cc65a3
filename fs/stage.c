/*
 * stage.c - how each open is served, and the life of the stage. Filling is in stage_fill.c.
 */
#include "fs/backing.h"
#include "fs/guard.h"
#include "fs/log.h"
#include "fs/stage_impl.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define READ_AHEAD_MAX (UINT64_C(16) << 20) /* bytes */

uint64_t stage_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* ---- how an open is served ---- */

/* Tell the kernel of the file, once. What it refuses is streamed from now on. */
static int backing_of(struct stage *stage, struct part *part, int fd)
{
	int *id = part->slot ? &part->slot->backing : &part->backing;
	int rc = *id ? *id : backing_open(stage->device, fd);

	if (rc > 0)
		*id = rc;
	return rc > 0 ? rc : 0;
}

/* All opens of a part agree: when its first one is decided, part->passed is. */
static void decide(struct stage *stage, struct stage_open *open, bool first)
{
	struct part *part = open->part;
	int fd = part->slot ? part->slot->fd : open->fd;

	if (first)
		part->passed = stage->device >= 0 && (!part->line || part->state == PART_FULL);
	if (part->passed)
		open->backing = backing_of(stage, part, fd);
	if (first && !open->backing)
		part->passed = false;
	open->fd = part->passed ? fd : -1;
	stage->n_passed += part->passed;
}

struct stage_open *stage_decide_waiting(struct stage *stage, struct part *part)
{
	struct stage_open *waiting = part->waiting;
	bool first = true;

	part->waiting = NULL;
	for (struct stage_open *open = waiting; open; open = open->next, first = false)
		decide(stage, open, first);
	if (waiting)
		part->line->opened = stage_now();
	return waiting;
}

void stage_answer(struct stage_open *open)
{
	while (open) {
		struct stage_open *next = open->next;

		open->decided(open);
		open = next;
	}
}

/* ---- opens ---- */

static struct line *find_line(const struct stage *stage, const struct sl_view *view)
{
	struct line *line = stage->lines;

	while (line && line->view != view)
		line = line->next;
	return line;
}

static void name_line(struct line *line, const struct node *node)
{
	char path[4096], *slash;

	tree_node_path(node, path, sizeof(path));
	slash = strrchr(path, '/');
	snprintf(line->directory, sizeof(line->directory), "%.*s", slash ? (int)(slash - path) : 0, path);
}

/* The line of a weight file. */
static struct line *line_of(struct stage *stage, const struct node *node)
{
	struct line *line = find_line(stage, node->view);

	if (line)
		return line;
	line = line_new(node->view);
	if (line) {
		name_line(line, node);
		line->next = stage->lines;
		stage->lines = line;
	}
	return line;
}

static struct part *source_part(struct stage *stage, const struct node *node)
{
	struct part *part = stage->passed;

	while (part && part->node != node)
		part = part->next;
	if (part)
		return part;
	part = calloc(1, sizeof(*part));
	if (part) {
		part->node = node;
		part->next = stage->passed;
		stage->passed = part;
	}
	return part;
}

/* The part that a node is, or NULL: it can only be streamed. */
static struct part *part_of(struct stage *stage, const struct node *node)
{
	int64_t index = line_index(node);
	struct line *line;

	if (node->kind == NODE_SOURCE)
		return source_part(stage, node);
	if (index < 0 || !stage->staging)
		return NULL;
	line = line_of(stage, node);
	return line ? &line->parts[index] : NULL;
}

/* Its first open: is it to wait? What was foreseen but could not be staged in time is staged now, if there is memory:
 * that takes less than streaming it. */
static bool must_wait(struct stage *stage, struct part *part)
{
	bool foreseen;

	if (!part->line)
		return false;
	foreseen = line_opened(part->line, part_index(part), stage_now());
	pthread_cond_signal(&stage->work); /* the line may have moved on */
	if (part->n_opens)
		return part->waiting;
	if (part->state == PART_EMPTY && foreseen && part_file(part)->size <= slots_budget(stage->slots))
		stage_queue(stage, part);
	return part->state == PART_FILLING;
}

bool stage_begin(struct stage *stage, struct stage_open *open, const struct node *node, int fd)
{
	bool waits;

	*open = (struct stage_open){ .decided = open->decided, .fd = fd };
	pthread_mutex_lock(&stage->lock);
	open->part = stage->device >= 0 ? part_of(stage, node) : NULL;
	waits = open->part && must_wait(stage, open->part);
	if (waits) {
		open->next = open->part->waiting;
		open->part->waiting = open;
	} else if (open->part) {
		decide(stage, open, !open->part->n_opens);
	} else {
		open->fd = -1;
	}
	if (open->part)
		open->part->n_opens++;
	pthread_mutex_unlock(&stage->lock);
	return !waits;
}

void stage_read(struct stage *stage, struct stage_open *open, uint64_t off, uint64_t len)
{
	struct part *part = open->part;
	uint64_t now;

	if (!part || !part->line || part->passed)
		return;
	now = stage_now();
	atomic_store_explicit(&part->line->seen, now, memory_order_relaxed);
	if (off + len <=
		    part_file(part)->pieces[0].len + atomic_load_explicit(&stage->read_ahead, memory_order_relaxed) ||
	    atomic_exchange(&open->evident, true))
		return;
	pthread_mutex_lock(&stage->lock);
	line_read(part->line, part_index(part), now);
	pthread_cond_signal(&stage->work);
	pthread_mutex_unlock(&stage->lock);
}

bool stage_passes(struct stage *stage, const struct node *node)
{
	int64_t index = line_index(node);
	struct line *line;
	bool passes;

	pthread_mutex_lock(&stage->lock);
	passes = stage->device >= 0 && node->kind == NODE_SOURCE;
	line = index < 0 ? NULL : find_line(stage, node->view);
	if (line && stage->device >= 0) {
		const struct part *part = &line->parts[index];

		passes = part->n_opens && !part->waiting ? part->passed : part->state != PART_EMPTY;
	}
	pthread_mutex_unlock(&stage->lock);
	return passes;
}

static void forget_source(struct stage *stage, struct part *part)
{
	struct part **at = &stage->passed;

	while (*at != part)
		at = &(*at)->next;
	*at = part->next;
	if (part->backing)
		backing_close(stage->device, part->backing);
	free(part);
}

void stage_end(struct stage *stage, struct stage_open *open)
{
	struct part *part = open->part;

	if (!part)
		return;
	pthread_mutex_lock(&stage->lock);
	if (!--part->n_opens && !part->line)
		forget_source(stage, part);
	if (stage->starved)
		pthread_cond_signal(&stage->work);
	pthread_mutex_unlock(&stage->lock);
}

/* ---- life ---- */

static void init_lock(struct stage *stage)
{
	pthread_condattr_t attr;

	pthread_mutex_init(&stage->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&stage->work, &attr);
	pthread_condattr_destroy(&attr);
}

int stage_new(struct stage **out, struct tree *tree, uint64_t budget, enum slots_kind memory, struct sl_error *err)
{
	struct stage *stage = calloc(1, sizeof(*stage));
	int rc;

	*out = NULL;
	if (!stage)
		return sl_fail(err, ENOMEM, "no memory to stage files");
	stage->tree = tree;
	stage->staging = budget > 0;
	stage->device = -1;
	stage->read_ahead = READ_AHEAD_MAX;
	snprintf(stage->passthrough_why, sizeof(stage->passthrough_why), "nothing is mounted yet");
	init_lock(stage);
	rc = slots_open(&stage->slots, budget, memory, err);
	if (!rc && budget)
		rc = guard_install(err);
	if (rc)
		stage_free(stage);
	else
		*out = stage;
	return rc;
}

/* Does the kernel take a file of ours? 0 or -errno. */
static int probe(struct stage *stage, int device)
{
	struct sl_error err = SL_ERROR_INIT;
	struct slots *slots;
	struct slot *slot;
	int rc = slots_open(&slots, 1, SLOTS_TMPFS, &err), id = 0;

	if (!rc)
		rc = slot_open(&slot, slots, 1, &err);
	if (!rc) {
		id = backing_open(device, slot->fd);
		slot_close(slots, slot);
	}
	if (id > 0)
		backing_close(device, id);
	slots_close(slots);
	snprintf(stage->passthrough_why, sizeof(stage->passthrough_why), "%s",
		 rc		? err.text
		 : id == -EPERM ? "it takes CAP_SYS_ADMIN, outside of user namespaces"
				: strerror(-id));
	return rc ? rc : id < 0 ? id : 0;
}

static unsigned count_fillers(void)
{
	long n = sysconf(_SC_NPROCESSORS_ONLN);

	return n < 1 ? 1 : n > STAGE_FILLERS_MAX ? STAGE_FILLERS_MAX : (unsigned)n;
}

static void start_threads(struct stage *stage)
{
	unsigned wanted = count_fillers() + STAGE_READERS;
	int rc = 0;

	stage->n_fillers = count_fillers();
	while (!rc && stage->n_threads < wanted) {
		rc = pthread_create(&stage->threads[stage->n_threads], NULL, stage_fill_thread, stage);
		stage->n_threads += !rc;
	}
	if (rc)
		log_line(LOG_WARNING, "staging: %u of %u threads: %s", stage->n_threads, wanted, strerror(rc));
}

void stage_set_read_ahead(struct stage *stage, uint64_t bytes)
{
	atomic_store_explicit(&stage->read_ahead, bytes, memory_order_relaxed);
}

void stage_start(struct stage *stage, int device, const char *why)
{
	signal(SIGIO, SIG_IGN); /* what a lease would send if it were broken */
	pthread_mutex_lock(&stage->lock);
	if (device < 0)
		snprintf(stage->passthrough_why, sizeof(stage->passthrough_why), "%s", why);
	else if (!probe(stage, device))
		stage->device = device;
	if (stage->device >= 0 && stage->staging)
		start_threads(stage);
	stage->staging = stage->n_threads > 0;
	pthread_mutex_unlock(&stage->lock);
}

void stage_stop(struct stage *stage)
{
	pthread_mutex_lock(&stage->lock);
	stage->stopping = true;
	pthread_cond_broadcast(&stage->work);
	pthread_mutex_unlock(&stage->lock);
	for (unsigned i = 0; i < stage->n_threads; i++)
		pthread_join(stage->threads[i], NULL);
	stage->n_threads = 0;
	stage->device = -1; /* it may be closed now */
	stage_drop_batches(stage);
}

void stage_free(struct stage *stage)
{
	struct line *next;

	if (!stage)
		return;
	for (struct line *line = stage->lines; line; line = next) {
		next = line->next;
		for (uint32_t i = 0; i < line->n_parts; i++)
			if (line->parts[i].slot)
				slot_close(stage->slots, line->parts[i].slot);
		free(line);
	}
	while (stage->passed) {
		struct part *part = stage->passed;

		stage->passed = part->next;
		free(part);
	}
	slots_close(stage->slots);
	pthread_cond_destroy(&stage->work);
	pthread_mutex_destroy(&stage->lock);
	free(stage);
}

static const char *why_not_staging(const struct stage *stage)
{
	if (stage->n_threads)
		return NULL;
	if (!slots_budget(stage->slots))
		return "stage=off";
	return stage->device < 0 ? "nothing is passed through" : "no thread could be made";
}

void stage_figures(struct stage *stage, struct stage_figures *figures)
{
	pthread_mutex_lock(&stage->lock);
	*figures = (struct stage_figures){
		.passthrough = stage->device < 0 ? stage->passthrough_why : NULL,
		.staging = why_not_staging(stage),
		.memory = slots_what(stage->slots),
		.budget = slots_budget(stage->slots),
		.used = slots_used(stage->slots),
		.n_staged = stage->n_staged,
		.bytes_staged = stage->bytes_staged,
		.n_failed = stage->n_failed,
		.n_passed = stage->n_passed,
		.threads = stage->n_fillers,
	};
	pthread_mutex_unlock(&stage->lock);
}

static const char *const state_names[] = {
	[PART_EMPTY] = "streamed",
	[PART_FILLING] = "filling",
	[PART_FULL] = "staged",
};

void stage_each_file(struct stage *stage, void (*each)(void *context, const struct stage_file *file), void *context)
{
	pthread_mutex_lock(&stage->lock);
	for (struct line *line = stage->lines; line; line = line->next)
		for (uint32_t i = 0; i < line->n_parts; i++) {
			const struct part *part = &line->parts[i];

			if (part->state == PART_EMPTY && !part->n_opens)
				continue;
			each(context, &(struct stage_file){
					      .directory = line->directory,
					      .name = part_file(part)->name,
					      .state = state_names[part->state],
					      .bytes = part_file(part)->size,
					      .n_open = part->n_opens,
					      .passed = part->n_opens && part->passed,
				      });
		}
	pthread_mutex_unlock(&stage->lock);
}
