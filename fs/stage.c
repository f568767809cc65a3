/*
 * stage.c - opens, batches of parts that are filled together, and the threads that fill them. One lock; the copying is
 * done outside of it.
 */
#include "fs/stage.h"
#include "fs/backing.h"
#include "fs/fill.h"
#include "fs/guard.h"
#include "fs/line.h"
#include "fs/log.h"
#include "fs/slot.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BATCH_MAX      64
#define THREADS_MAX    8
#define READ_AHEAD_MAX (UINT64_C(16) << 20) /* bytes */
#define RETRY_NS       20000000		    /* until memory is looked for again, when all is held */

/* Parts that are filled together. */
struct batch {
	struct batch *next;
	struct part *parts[BATCH_MAX];
	size_t n;
	struct fill *fill; /* NULL: not cut into units yet */
	bool is_cut;	   /* by a thread, now or before */
	size_t next_unit, n_running;
	int rc;
	struct sl_error err;
};

struct stage {
	struct tree *tree;
	bool staging; /* with a budget */
	pthread_mutex_t lock;
	pthread_cond_t work; /* units, a batch, or memory for one */
	pthread_t threads[THREADS_MAX];
	unsigned n_threads;
	bool stopping, starved;
	int device; /* -1: nothing is passed through */
	_Atomic uint64_t read_ahead;
	char passthrough_why[200], staging_why[200];
	struct slots *slots;
	struct line *lines;
	struct part *passed; /* files of the source that are open */
	struct batch *batches;
	uint64_t clock; /* of events */
	uint64_t n_staged, bytes_staged, n_failed, n_passed;
};

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* ---- memory ---- */

static void drop_slot(struct stage *stage, struct slot *slot)
{
	if (slot->backing)
		backing_close(stage->device, slot->backing);
	slot_close(stage->slots, slot);
}

static bool is_older(const struct part *a, const struct part *b)
{
	return !b || a->used < b->used;
}

/* The part of `line` that was used the longest ago and may lose its slot: not open, not wanted soon, and not found to be
 * held in this search; or `best`. */
static struct part *older_victim(const struct stage *stage, struct line *line, struct part *best, uint64_t now)
{
	for (uint32_t i = 0; i < line->n_parts; i++) {
		struct part *part = &line->parts[i];

		if (part->state == PART_FULL && !part->n_opens && part->tested != stage->clock &&
		    !line_claims(line, i, now) && is_older(part, best))
			best = part;
	}
	return best;
}

/* Take the slot of a part that nobody reads any more; NULL when there is none. */
static struct slot *take_from_victim(struct stage *stage)
{
	uint64_t now = now_ns();

	stage->clock++;
	for (;;) {
		struct part *victim = NULL;
		struct slot *slot;

		for (struct line *line = stage->lines; line; line = line->next)
			victim = older_victim(stage, line, victim, now);
		if (!victim)
			return NULL;
		slot = victim->slot;
		if (!slot_is_held(slot)) {
			victim->slot = NULL;
			victim->state = PART_EMPTY;
			return slot;
		}
		victim->tested = stage->clock;
	}
}

static int resize(struct stage *stage, struct slot *slot, uint64_t size, struct sl_error *err)
{
	int backing = slot->backing, rc = slot_resize(stage->slots, slot, size, err);

	if (rc && backing)
		backing_close(stage->device, backing);
	return rc;
}

/* A slot of `size` bytes, new or another part's; NULL when there is no memory for it. */
static struct slot *take_slot(struct stage *stage, uint64_t size)
{
	struct sl_error err = SL_ERROR_INIT;
	struct slot *slot = NULL;

	while (!slots_have_room(stage->slots, size, NULL)) {
		slot = take_from_victim(stage);
		if (!slot)
			return NULL;
		if (slots_have_room(stage->slots, size, slot))
			break;
		drop_slot(stage, slot);
		slot = NULL;
	}
	if (!(slot ? resize(stage, slot, size, &err) : slot_open(&slot, stage->slots, size, &err)))
		return slot;
	log_line(LOG_WARNING, "staging: %s", err.text);
	return NULL;
}

/* ---- batches ---- */

/* Give a part a slot and put it into a batch. */
static bool add_to_batch(struct stage *stage, struct batch *batch, struct part *part)
{
	struct slot *slot = take_slot(stage, part_file(part)->size);

	if (!slot)
		return false;
	part->slot = slot;
	part->state = PART_FILLING;
	part->line->served = ++stage->clock;
	batch->parts[batch->n++] = part;
	return true;
}

/* The ranks beside it that want the same part. */
static void add_beside(struct stage *stage, struct batch *batch, const struct line *first, uint32_t index)
{
	uint64_t max = slots_budget(stage->slots), now = now_ns();

	for (struct line *line = stage->lines; line && batch->n < BATCH_MAX; line = line->next)
		if (index < line->n_parts && line_wants(line, index, max, now) && line_is_beside(first, line) &&
		    !add_to_batch(stage, batch, &line->parts[index]))
			return;
}

/* Queue the filling of a part, and of the same one of ranks beside it. */
static bool queue_batch(struct stage *stage, struct part *part)
{
	struct batch *batch = calloc(1, sizeof(*batch)), **end = &stage->batches;

	if (!batch || !add_to_batch(stage, batch, part)) {
		free(batch);
		return false;
	}
	add_beside(stage, batch, part->line, part_index(part));
	while (*end)
		end = &(*end)->next;
	*end = batch;
	pthread_cond_broadcast(&stage->work);
	return true;
}

static bool is_more_urgent(const struct part *a, const struct part *b)
{
	if (!b || line_ahead(a) != line_ahead(b))
		return !b || line_ahead(a) < line_ahead(b);
	return a->line->served < b->line->served;
}

/* Of all that is wanted: what its reader comes to first; among equals, that of the line that has waited the longest. */
static bool queue_most_urgent(struct stage *stage)
{
	uint64_t max = slots_budget(stage->slots), now = now_ns();
	struct part *best = NULL;

	for (struct line *line = stage->lines; line; line = line->next) {
		struct part *part = line_first_wanted(line, max, now);

		if (part && is_more_urgent(part, best))
			best = part;
	}
	stage->starved = best && !queue_batch(stage, best);
	return best && !stage->starved;
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

/* Opens that were waiting for a part that is FULL, or EMPTY again. Returns them, decided. */
static struct stage_open *decide_waiting(struct stage *stage, struct part *part)
{
	struct stage_open *waiting = part->waiting;
	bool first = true;

	part->waiting = NULL;
	for (struct stage_open *open = waiting; open; open = open->next, first = false)
		decide(stage, open, first);
	part->line->opened = now_ns();
	return waiting;
}

static void answer(struct stage_open *open)
{
	while (open) {
		struct stage_open *next = open->next;

		open->decided(open);
		open = next;
	}
}

/* ---- filling ---- */

static void end_part(struct stage *stage, struct part *part, int rc)
{
	if (rc) {
		drop_slot(stage, part->slot);
		part->slot = NULL;
		part->state = PART_EMPTY;
		part->line->active = false;
		stage->n_failed++;
		return;
	}
	part->state = PART_FULL;
	part->used = ++stage->clock;
	stage->n_staged++;
	stage->bytes_staged += part->slot->size;
}

static void unlink_batch(struct stage *stage, struct batch *batch)
{
	struct batch **at = &stage->batches;

	while (*at != batch)
		at = &(*at)->next;
	*at = batch->next;
}

/* Once for each part and errno: whoever reads it then gets the same error, or not any more. */
static void log_failure(const struct batch *batch)
{
	char what[320];

	snprintf(what, sizeof(what), "staging %s", part_file(batch->parts[0])->name);
	log_file_error((uintptr_t)batch->parts[0], what, &batch->err);
}

/* All that was begun of a batch has ended. Under the lock, which is let go of meanwhile. */
static void end_batch(struct stage *stage, struct batch *batch)
{
	struct stage_open *waiting[BATCH_MAX];

	unlink_batch(stage, batch);
	pthread_mutex_unlock(&stage->lock);
	if (!batch->rc)
		batch->rc = fill_verify(batch->fill, &batch->err);
	if (batch->rc)
		log_failure(batch);
	pthread_mutex_lock(&stage->lock);
	for (size_t i = 0; i < batch->n; i++) {
		end_part(stage, batch->parts[i], batch->rc);
		waiting[i] = decide_waiting(stage, batch->parts[i]);
	}
	pthread_mutex_unlock(&stage->lock);
	for (size_t i = 0; i < batch->n; i++)
		answer(waiting[i]);
	fill_close(batch->fill);
	free(batch);
	pthread_mutex_lock(&stage->lock);
}

static bool has_work(const struct batch *batch)
{
	if (!batch->fill)
		return !batch->is_cut;
	return !batch->rc && batch->next_unit < fill_n_units(batch->fill);
}

static struct batch *find_work(const struct stage *stage)
{
	struct batch *batch = stage->batches;

	while (batch && !has_work(batch))
		batch = batch->next;
	return batch;
}

static void cut_batch(struct stage *stage, struct batch *batch)
{
	struct fill_target targets[BATCH_MAX];
	struct sl_error err = SL_ERROR_INIT;
	struct fill *fill;
	int rc;

	batch->is_cut = true;
	for (size_t i = 0; i < batch->n; i++)
		targets[i] = (struct fill_target){ part_file(batch->parts[i]), batch->parts[i]->slot->bytes };
	pthread_mutex_unlock(&stage->lock);
	rc = fill_open(&fill, tree_model(stage->tree), targets, batch->n, &err);
	pthread_mutex_lock(&stage->lock);
	batch->fill = fill;
	batch->rc = rc;
	batch->err = err;
	pthread_cond_broadcast(&stage->work);
}

static void do_unit(struct stage *stage, struct batch *batch)
{
	struct sl_error err = SL_ERROR_INIT;
	size_t unit = batch->next_unit++;
	int rc;

	batch->n_running++;
	pthread_mutex_unlock(&stage->lock);
	rc = fill_unit(batch->fill, unit, &err);
	pthread_mutex_lock(&stage->lock);
	batch->n_running--;
	if (rc && !batch->rc) {
		batch->rc = rc;
		batch->err = err;
	}
}

static void work_on(struct stage *stage, struct batch *batch)
{
	if (!batch->fill)
		cut_batch(stage, batch);
	else
		do_unit(stage, batch);
	if (!has_work(batch) && !batch->n_running)
		end_batch(stage, batch);
}

static void wait_for_work(struct stage *stage)
{
	struct timespec until;

	if (!stage->starved) {
		pthread_cond_wait(&stage->work, &stage->lock);
		return;
	}
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += RETRY_NS;
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	pthread_cond_timedwait(&stage->work, &stage->lock, &until);
}

static void *run_thread(void *context)
{
	struct stage *stage = context;
	sigset_t sigbus;

	sigemptyset(&sigbus);
	sigaddset(&sigbus, SIGBUS);
	pthread_sigmask(SIG_UNBLOCK, &sigbus, NULL); /* the guard's */
	pthread_mutex_lock(&stage->lock);
	while (!stage->stopping) {
		struct batch *batch = find_work(stage);

		if (batch)
			work_on(stage, batch);
		else if (!queue_most_urgent(stage))
			wait_for_work(stage);
	}
	pthread_mutex_unlock(&stage->lock);
	return NULL;
}

/* ---- opens ---- */

static struct line *line_of(struct stage *stage, const struct sl_view *view)
{
	struct line *line = stage->lines;

	while (line && line->view != view)
		line = line->next;
	if (line)
		return line;
	line = line_new(view);
	if (line) {
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
	line = line_of(stage, node->view);
	return line ? &line->parts[index] : NULL;
}

/* Its first open: is it to wait? What was foreseen but could not be staged in time is staged now, if there is memory:
 * that takes less than streaming it. */
static bool must_wait(struct stage *stage, struct part *part)
{
	bool foreseen;

	if (!part->line)
		return false;
	foreseen = line_opened(part->line, part_index(part), now_ns());
	pthread_cond_signal(&stage->work); /* the line may have moved on */
	if (part->n_opens)
		return part->waiting;
	if (part->state == PART_EMPTY && foreseen && part_file(part)->size <= slots_budget(stage->slots))
		queue_batch(stage, part);
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
	if (open->part) {
		open->part->n_opens++;
		open->part->used = ++stage->clock;
	}
	pthread_mutex_unlock(&stage->lock);
	return !waits;
}

void stage_read(struct stage *stage, struct stage_open *open, uint64_t off, uint64_t len)
{
	struct part *part = open->part;
	uint64_t now;

	if (!part || !part->line || part->passed)
		return;
	now = now_ns();
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
	part->used = ++stage->clock;
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

int stage_new(struct stage **out, struct tree *tree, uint64_t budget, struct sl_error *err)
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
	rc = slots_open(&stage->slots, budget, err);
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
	int rc = slots_open(&slots, 1, &err), id = 0;

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

static unsigned wanted_threads(void)
{
	long n = sysconf(_SC_NPROCESSORS_ONLN);

	return n < 1 ? 1 : n > THREADS_MAX ? THREADS_MAX : (unsigned)n;
}

static void start_threads(struct stage *stage)
{
	unsigned wanted = wanted_threads();
	int rc = 0;

	while (!rc && stage->n_threads < wanted) {
		rc = pthread_create(&stage->threads[stage->n_threads], NULL, run_thread, stage);
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
	for (struct batch *batch = stage->batches, *next; batch; batch = next) {
		next = batch->next;
		for (size_t i = 0; i < batch->n; i++) {
			batch->parts[i]->state = PART_EMPTY;
			answer(decide_waiting(stage, batch->parts[i]));
		}
		fill_close(batch->fill);
		free(batch);
	}
	stage->batches = NULL;
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

void stage_figures(struct stage *stage, struct stage_figures *figures)
{
	pthread_mutex_lock(&stage->lock);
	*figures = (struct stage_figures){
		.passthrough = stage->device < 0 ? stage->passthrough_why : NULL,
		.staging = stage->n_threads ? NULL
			   : stage->staging ? "nothing is passed through"
					    : "stage=off",
		.kind = slots_kind(stage->slots),
		.budget = slots_budget(stage->slots),
		.used = slots_used(stage->slots),
		.n_staged = stage->n_staged,
		.bytes_staged = stage->bytes_staged,
		.n_failed = stage->n_failed,
		.n_passed = stage->n_passed,
		.threads = stage->n_threads,
	};
	pthread_mutex_unlock(&stage->lock);
}
