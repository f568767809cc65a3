/*
 * stage_fill.c - memory for parts, batches of parts that are filled together, and the threads that fill them. One lock; the
 * copying is done outside of it.
 */
#include "fs/backing.h"
#include "fs/fill.h"
#include "fs/log.h"
#include "fs/memory.h"
#include "fs/stage_impl.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define BATCH_MAX      64
#define MEMORY_RESERVE (UINT64_C(64) << 20) /* bytes that are left to others */
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

/* ---- memory ---- */

static void drop_slot(struct stage *stage, struct slot *slot)
{
	if (slot->backing)
		backing_close(stage->device, slot->backing);
	slot_close(stage->slots, slot);
}

/* A slot that is wanted: of that size, at that time. */
struct wish {
	uint64_t size, now;
};

static bool is_idle(const struct line *line, uint64_t now)
{
	return now >= line->seen + LINE_IDLE_NS;
}

/* Lines whose readers have gone lose first. Then a slot of the right size: another one would give pages back that the next
 * part wants again, and to clear new ones costs more than to copy into them. Loads go round: of a line the part that was
 * read last will be wanted last. Of several lines the one whose reader has been quiet the longest loses first. */
static bool is_better_victim(const struct part *a, const struct part *b, const struct wish *wish)
{
	bool idle = is_idle(a->line, wish->now), fits = slot_fits(a->slot, wish->size);

	if (!b || idle != is_idle(b->line, wish->now))
		return !b || idle;
	if (fits != slot_fits(b->slot, wish->size))
		return fits;
	if (a->line != b->line)
		return a->line->seen < b->line->seen;
	return line_ahead(a) > line_ahead(b);
}

/* The part of `line` that may best lose its slot: not open, not wanted soon, and not found to be held in this search; or
 * `best`. */
static struct part *better_victim(const struct stage *stage, struct line *line, struct part *best,
				  const struct wish *wish)
{
	for (uint32_t i = 0; i < line->n_parts; i++) {
		struct part *part = &line->parts[i];

		if (part->state == PART_FULL && !part->n_opens && part->tested != stage->clock &&
		    !line_claims(line, i, wish->now) && is_better_victim(part, best, wish))
			best = part;
	}
	return best;
}

/* Take the slot of a part that nobody reads any more; NULL when there is none. */
static struct slot *take_from_victim(struct stage *stage, uint64_t size)
{
	struct wish wish = { size, stage_now() };

	stage->clock++;
	for (;;) {
		struct part *victim = NULL;
		struct slot *slot;

		for (struct line *line = stage->lines; line; line = line->next)
			victim = better_victim(stage, line, victim, &wish);
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

/* May memory for `size` more bytes be taken? Within the budget, and without driving the machine or the control group
 * against their limits: pages of tmpfs cannot be got back. */
static bool has_memory(const struct stage *stage, uint64_t size)
{
	uint64_t wanted = stage->bytes_filling + size + MEMORY_RESERVE;

	return slots_have_room(stage->slots, size, NULL) && wanted <= memory_available();
}

/* A slot of `size` bytes, new or another part's; NULL when there is no memory for it. */
static struct slot *take_slot(struct stage *stage, uint64_t size)
{
	struct sl_error err = SL_ERROR_INIT;
	struct slot *slot = NULL;

	while (!has_memory(stage, size)) {
		slot = take_from_victim(stage, size);
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
	stage->bytes_filling += slot->size;
	part->line->served = ++stage->clock;
	batch->parts[batch->n++] = part;
	return true;
}

/* The ranks beside it that want the same part. */
static void add_beside(struct stage *stage, struct batch *batch, const struct line *first, uint32_t index)
{
	uint64_t max = slots_budget(stage->slots), now = stage_now();

	for (struct line *line = stage->lines; line && batch->n < BATCH_MAX; line = line->next)
		if (index < line->n_parts && line_wants(line, index, max, now) && line_is_beside(first, line) &&
		    !add_to_batch(stage, batch, &line->parts[index]))
			return;
}

/* Threads that only wait for disks are not woken: one that begins to wait wakes the next. */
static void wake_fillers(struct stage *stage)
{
	for (unsigned i = 0; i < stage->n_fillers; i++)
		pthread_cond_signal(&stage->work);
}

bool stage_queue(struct stage *stage, struct part *part)
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
	wake_fillers(stage);
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
	uint64_t max = slots_budget(stage->slots), now = stage_now();
	struct part *best = NULL;

	for (struct line *line = stage->lines; line; line = line->next) {
		struct part *part = line_first_wanted(line, max, now);

		if (part && is_more_urgent(part, best))
			best = part;
	}
	stage->starved = best && !stage_queue(stage, best);
	return best && !stage->starved;
}

/* ---- filling ---- */

static void end_part(struct stage *stage, struct part *part, int rc)
{
	stage->bytes_filling -= part->slot->size;
	if (rc) {
		drop_slot(stage, part->slot);
		part->slot = NULL;
		part->state = PART_EMPTY;
		part->line->active = false;
		stage->n_failed++;
		return;
	}
	part->state = PART_FULL;
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
		waiting[i] = stage_decide_waiting(stage, batch->parts[i]);
	}
	pthread_mutex_unlock(&stage->lock);
	for (size_t i = 0; i < batch->n; i++)
		stage_answer(waiting[i]);
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
	wake_fillers(stage);
}

/* Another thread fills while this one waits for a disk. Without the lock. */
static void read_unit(struct stage *stage, const struct batch *batch, size_t unit)
{
	pthread_mutex_lock(&stage->lock);
	stage->n_filling--;
	pthread_cond_signal(&stage->work);
	pthread_mutex_unlock(&stage->lock);
	fill_read(batch->fill, unit);
	pthread_mutex_lock(&stage->lock);
	stage->n_filling++;
	pthread_mutex_unlock(&stage->lock);
}

static void do_unit(struct stage *stage, struct batch *batch)
{
	struct sl_error err = SL_ERROR_INIT;
	size_t unit = batch->next_unit++;
	int rc;

	batch->n_running++;
	pthread_mutex_unlock(&stage->lock);
	if (fill_must_read(batch->fill, unit))
		read_unit(stage, batch, unit);
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
	stage->n_filling++;
	if (!batch->fill)
		cut_batch(stage, batch);
	else
		do_unit(stage, batch);
	stage->n_filling--;
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

void *stage_fill_thread(void *context)
{
	struct stage *stage = context;
	sigset_t sigbus;

	sigemptyset(&sigbus);
	sigaddset(&sigbus, SIGBUS);
	pthread_sigmask(SIG_UNBLOCK, &sigbus, NULL); /* the guard's */
	pthread_mutex_lock(&stage->lock);
	while (!stage->stopping) {
		bool full = stage->n_filling >= stage->n_fillers;
		struct batch *batch = full ? NULL : find_work(stage);

		if (batch)
			work_on(stage, batch);
		else if (full || !queue_most_urgent(stage))
			wait_for_work(stage);
	}
	pthread_mutex_unlock(&stage->lock);
	return NULL;
}

void stage_drop_batches(struct stage *stage)
{
	for (struct batch *batch = stage->batches, *next; batch; batch = next) {
		next = batch->next;
		for (size_t i = 0; i < batch->n; i++) {
			batch->parts[i]->state = PART_EMPTY;
			stage_answer(stage_decide_waiting(stage, batch->parts[i]));
		}
		fill_close(batch->fill);
		free(batch);
	}
	stage->batches = NULL;
}
