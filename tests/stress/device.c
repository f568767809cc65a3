/*
 * device.c - threads that read what a device computes, all at once: whole and in pieces, while facts are learned, while workers run
 * out, while the device fails. A plain program, since Criterion does not start under ThreadSanitizer.
 *
 * Every byte must be right, whoever made it; and a device that was lost must have been noticed.
 */
#include "fs/device.h"
#include "cuda/backend.h"
#include "slicer/model.h"
#include "slicer/transform.h"
#include "slicer/transforms/map.h"
#include "slicer/transforms/rows.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 20, READS = 12, SAMPLES = 6, ROWS = 512, ROW_BYTES = 1200, LEN = ROWS * ROW_BYTES };

struct sample {
	unsigned char in[LEN], want[LEN];
	struct sl_piece piece;
	struct sl_transform t;
};

static struct sample samples[SAMPLES];
static struct sl_model model;
static atomic_uint n_wrong;

static unsigned next(unsigned *seed)
{
	*seed = *seed * 1103515245u + 12345u;
	return *seed >> 8;
}

/* Odd ones exchange the halves of the rows; even ones turn 80 into 00, by a table that is learned. */
static void init(struct sample *s, unsigned number)
{
	unsigned seed = number;

	for (unsigned i = 0; i < LEN; i++)
		s->in[i] = (unsigned char)next(&seed);
	for (unsigned i = 0; i < LEN; i++)
		s->want[i] = number % 2 ? s->in[(i + LEN / 2) % LEN] : s->in[i] == 0x80 ? 0 : s->in[i];
	s->piece = (struct sl_piece){ .op = SL_OP_DATA, .len = LEN, .data = s->in };
	s->t = (struct sl_transform){ .id = number % 2 ? SL_T_ROWS : SL_T_MAP, .n_inputs = 1 };
	s->t.args = (struct sl_args){ .batch = 1, .rows = ROWS, .row_bytes = ROW_BYTES };
	s->t.args.in[0].rows = ROWS;
	s->t.args.in[0].row_bytes = ROW_BYTES;
	s->t.in[0] = (struct sl_stream){ .pieces = &s->piece, .n = 1, .stride = LEN, .pitch = ROW_BYTES };
	if (number % 2) {
		s->t.args.p[SL_ROWS_CHAIN] = SL_ROWS_SWAPPED;
		s->t.args.p[SL_ROWS_M] = ROWS;
		return;
	}
	s->t.args.p[SL_MAP_KIND] = SL_MAP_FNUZ;
	s->t.args.p[SL_MAP_N] = 1;
	s->t.args.p[SL_MAP_ENDS] = ROWS;
}

static void forget_facts(struct sample *s)
{
	free(s->t.facts);
	s->t.facts = s->t.id == SL_T_MAP ? calloc(1, sizeof(*s->t.facts) + 256) : NULL;
}

static void *read_at_random(void *context)
{
	unsigned seed = (unsigned)(uintptr_t)context;
	unsigned char *out = malloc(LEN);

	for (unsigned i = 0; i < READS && out; i++) {
		const struct sample *s = &samples[next(&seed) % SAMPLES];
		struct sl_error err = SL_ERROR_INIT;
		unsigned at = next(&seed) % 2 ? 0 : next(&seed) % LEN, len = at ? 1 + next(&seed) % (LEN - at) : LEN;
		if (sl_transform_read(&model, &s->t, at, len, out, &err) || memcmp(out, s->want + at, len)) {
			fprintf(stderr, "[%u, +%u) of %u: %s\n", at, len, s->t.id, err.errnum ? err.text : "wrong");
			atomic_fetch_add(&n_wrong, 1);
		}
	}
	free(out);
	return NULL;
}

static int run(struct cuda_counts fail_from, const char *begins)
{
	struct device *device = device_new(&sl_backend_cuda_host, 0, "the test's device", 1);
	pthread_t threads[THREADS];
	char text[600];

	if (!device)
		return 1;
	cuda_host_fail(fail_from);
	device_use(device, &model);
	for (unsigned i = 0; i < SAMPLES; i++)
		forget_facts(&samples[i]);
	for (uintptr_t i = 0; i < THREADS; i++) {
		if (pthread_create(&threads[i], NULL, read_at_random, (void *)(i + 1)))
			abort();
	}
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	device_text(device, text, sizeof(text));
	printf("%u launches: %s\n", cuda_host_counts().launches, text);
	device_close(device);
	return strncmp(text, begins, strlen(begins)) != 0;
}

int main(void)
{
	int wrong;

	for (unsigned i = 0; i < SAMPLES; i++)
		init(&samples[i], i);
	wrong = run((struct cuda_counts){ 0 }, "cuda, ");
	wrong |= run((struct cuda_counts){ .allocations = 30 }, "cuda, "); /* five workers */
	wrong |= run((struct cuda_counts){ .operations = 60 }, "cpu (");
	for (unsigned i = 0; i < SAMPLES; i++)
		free(samples[i].t.facts);
	if (wrong || n_wrong)
		printf("%u reads were wrong%s\n", n_wrong, wrong ? "; the device is in another state" : "");
	return wrong || n_wrong;
}
