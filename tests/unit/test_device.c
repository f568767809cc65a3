/*
 * test_device.c - blocks on a device that is the processor: the same bytes at any size, and the processor instead, said once,
 * when the device is full, lost or busy.
 */
#include "cuda/backend.h"
#include "cuda/runtime.h"
#include "fs/device.h"
#include "fs/gpu.h"
#include "fs/options.h"
#include "slicer/transform.h"
#include "slicer/transforms/map.h"
#include "slicer/transforms/rows.h"
#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* ---- transforms of bytes in memory ---- */

struct sample {
	struct sl_piece piece;
	struct sl_facts *facts;
	struct sl_transform t;
	unsigned char *in, *out, *want;
	uint64_t len;
};

static unsigned char *random_bytes(uint64_t len)
{
	unsigned char *bytes = malloc(len);

	cr_assert(bytes);
	for (uint64_t i = 0; i < len; i++)
		bytes[i] = (unsigned char)(rand() >> 7);
	return bytes;
}

static void sample_init(struct sample *s, enum sl_transform_id id, uint64_t rows, uint64_t row_bytes)
{
	*s = (struct sample){ .len = rows * row_bytes };
	s->in = random_bytes(s->len);
	s->out = malloc(s->len);
	s->want = malloc(s->len);
	s->piece = (struct sl_piece){ .op = SL_OP_DATA, .len = s->len, .data = s->in };
	s->t = (struct sl_transform){ .id = id, .n_inputs = 1 };
	s->t.args = (struct sl_args){ .batch = 1, .rows = rows, .row_bytes = row_bytes };
	s->t.args.in[0].rows = rows;
	s->t.args.in[0].row_bytes = row_bytes;
	s->t.in[0] = (struct sl_stream){ .pieces = &s->piece, .n = 1, .stride = s->len, .pitch = row_bytes };
}

/* The first half of the rows through a table, the others through another. */
static void map_init(struct sample *s, uint64_t rows, uint64_t row_bytes)
{
	sample_init(s, SL_T_MAP, rows, row_bytes);
	s->t.args.p[SL_MAP_N] = 2;
	s->t.args.p[SL_MAP_ENDS] = rows / 2;
	s->t.args.p[SL_MAP_ENDS + 1] = rows;
	s->t.facts = s->facts = malloc(sizeof(*s->facts) + 512);
	s->facts->state = 2;
	s->facts->serial = 1 + (uint64_t)rand();
	for (unsigned i = 0; i < 512; i++)
		s->facts->bytes[i] = (unsigned char)(rand() >> 7);
	for (uint64_t i = 0; i < s->len; i++)
		s->want[i] = s->facts->bytes[(i / row_bytes >= rows / 2 ? 256 : 0) + s->in[i]];
}

/* The halves exchanged. */
static void rows_init(struct sample *s, uint64_t rows, uint64_t row_bytes)
{
	uint64_t half = rows / 2 * row_bytes;

	sample_init(s, SL_T_ROWS, rows, row_bytes);
	s->t.args.p[SL_ROWS_CHAIN] = SL_ROWS_SWAPPED;
	s->t.args.p[SL_ROWS_M] = rows;
	memcpy(s->want, s->in + half, half);
	memcpy(s->want + half, s->in, half);
}

static void sample_release(struct sample *s)
{
	free(s->in);
	free(s->out);
	free(s->want);
	free(s->facts);
}

/* Read a range and compare it. */
static void expect_range(const struct sl_model *model, struct sample *s, uint64_t at, uint64_t len)
{
	struct sl_error err = SL_ERROR_INIT;

	memset(s->out, 0x5A, s->len);
	cr_assert_eq(sl_transform_read(model, &s->t, at, len, s->out + at, &err), 0, "%s", err.text);
	cr_assert(!memcmp(s->out + at, s->want + at, len), "%s: [%llu, +%llu) differs", sl_transforms[s->t.id]->name,
		  (unsigned long long)at, (unsigned long long)len);
	for (uint64_t i = 0; i < s->len; i++)
		cr_assert(s->out[i] == 0x5A || (i >= at && i < at + len), "byte %llu was written",
			  (unsigned long long)i);
}

static void expect(const struct sl_model *model, struct sample *s)
{
	expect_range(model, s, 0, s->len);
}

static struct sl_model on_host(void)
{
	struct sl_model model = { .backend = &sl_backend_cuda_host };
	struct sl_error err = SL_ERROR_INIT;

	cuda_host_fail((struct cuda_counts){ 0 });
	cr_assert_eq(model.backend->open(&model.backend_state, -1, &err), 0, "%s", err.text);
	return model;
}

static struct device *device_on_host(struct sl_model *model, struct cuda_counts fail_from)
{
	struct device *device = device_new(&sl_backend_cuda_host, 0, "device 0 (a test)", 0);

	cuda_host_fail(fail_from);
	*model = (struct sl_model){ 0 };
	device_use(device, model);
	return device;
}

static void expect_text(struct device *device, const char *begins)
{
	char text[600];

	device_text(device, text, sizeof(text));
	cr_assert(!strncmp(text, begins, strlen(begins)), "'%s', not '%s…'", text, begins);
}

/* ---- the backend ---- */

Test(device, any_size)
{
	struct sl_model model = on_host();

	for (unsigned i = 0; i < 60; i++) {
		uint64_t rows = 2 * (1 + (uint64_t)rand() % 300), row_bytes = 1 + (uint64_t)rand() % 3000;
		struct sample s;
		(i % 2 ? map_init : rows_init)(&s, rows, row_bytes);
		uint64_t at = (uint64_t)rand() % s.len;
		expect(&model, &s);
		expect_range(&model, &s, at, 1 + (uint64_t)rand() % (s.len - at));
		sample_release(&s);
	}
	model.backend->close(model.backend_state);
}

/* Blocks are of megabytes, not of what a processor's stack holds: a matrix of 10 MiB takes as many launches as its blocks. */
Test(device, larger_blocks)
{
	struct sl_model model = on_host();
	struct sample s;

	map_init(&s, 5120, 2048);
	expect(&model, &s);
	cr_assert_eq(cuda_host_counts().launches, 3 + 1, "%u launches", cuda_host_counts().launches);
	model.backend->close(model.backend_state);
	sample_release(&s);
}

/* Rows that come from far apart need more than the first block did: cut again. */
Test(device, blocks_cut_again)
{
	struct sl_model model = on_host(), cpu = { 0 };
	struct sample s;

	rows_init(&s, 6000, 1500);
	expect(&model, &s);
	expect(&cpu, &s);
	model.backend->close(model.backend_state);
	sample_release(&s);
}

/* Facts at the same address, of the same length, are others when their serial says so; more than a worker keeps. */
Test(device, facts)
{
	struct sl_model model = on_host();
	struct sample s;

	map_init(&s, 8, 100);
	for (unsigned i = 0; i < 3 * CUDA_FACTS_KEPT; i++) {
		s.facts->serial = i % 5 ? i : 0;
		for (unsigned k = 0; k < 512; k++)
			s.facts->bytes[k] = (unsigned char)(k * 7 + i);
		for (uint64_t k = 0; k < s.len; k++)
			s.want[k] = s.facts->bytes[(k >= s.len / 2 ? 256 : 0) + s.in[k]];
		expect(&model, &s);
		expect(&model, &s);
	}
	model.backend->close(model.backend_state);
	sample_release(&s);
}

/* More of them than the buffer for it holds. */
Test(device, large_facts)
{
	enum { MEMBERS = 3000 };
	struct sl_model model = on_host();
	struct sample s;

	map_init(&s, 2, 64);
	s.facts = s.t.facts = realloc(s.facts, sizeof(*s.facts) + 512 * MEMBERS);
	for (unsigned m = 1; m < MEMBERS; m++)
		memcpy(s.facts->bytes + 512 * m, s.facts->bytes, 512);
	s.t.args.batch = MEMBERS;
	s.t.in[0].stride = 0;
	for (unsigned i = 0; i < 3; i++) {
		s.facts->serial++;
		expect(&model, &s);
	}
	model.backend->close(model.backend_state);
	sample_release(&s);
}

Test(device, leases)
{
	struct sl_model model = on_host();
	const struct sl_backend *backend = model.backend;
	unsigned char *memory[CUDA_WORKERS];
	struct sl_error err = SL_ERROR_INIT;
	struct sl_args args = { .batch = 1, .rows = 1, .row_bytes = 4 };
	unsigned char in[4] = { 1, 2, 3, 4 }, out[4];
	struct sl_block block = { .out = { 0, 1, 0, 4 }, .in = { { 0, 1, 0, 4 } }, .bytes = { in }, .dst = out };

	args.p[SL_ROWS_M] = 1;
	for (unsigned i = 0; i < CUDA_WORKERS; i++) {
		memory[i] = backend->lease(model.backend_state, 1);
		cr_assert(memory[i]);
		for (unsigned j = 0; j < i; j++)
			cr_assert_neq(memory[i], memory[j]);
	}
	cr_assert_null(backend->lease(model.backend_state, 1));
	cr_assert_eq(backend->run(model.backend_state, SL_T_ROWS, &args, &block, &err), -EBUSY);
	cr_assert(strstr(err.text, "are taken"), "%s", err.text);

	memcpy(memory[5] + 128, in, 4); /* who has leased memory can use it */
	block.bytes[0] = memory[5] + 128;
	cr_assert_eq(backend->run(model.backend_state, SL_T_ROWS, &args, &block, &err), 0);
	cr_assert(!memcmp(out, in, 4));

	backend->give_back(model.backend_state, memory[3]);
	cr_assert_eq(backend->lease(model.backend_state, 1), memory[3]);
	backend->abandon(model.backend_state);
	for (unsigned i = 0; i < CUDA_WORKERS; i++)
		cr_assert(backend->lease(model.backend_state, 1));
	backend->close(model.backend_state);
}

static void *abandon(void *context)
{
	struct sl_model *model = context;

	model->backend->abandon(model->backend_state);
	return NULL;
}

/* A thread that was cut off gives up its own, and nobody else's. */
Test(device, abandons_its_own)
{
	struct sl_model model = on_host();
	unsigned char *first = model.backend->lease(model.backend_state, 1);
	pthread_t thread;

	cr_assert_eq(pthread_create(&thread, NULL, abandon, &model), 0);
	pthread_join(thread, NULL);
	cr_assert_neq(model.backend->lease(model.backend_state, 1), first);
	model.backend->close(model.backend_state);
}

Test(device, too_large_a_block)
{
	struct sl_model model = on_host();
	struct sl_error err = SL_ERROR_INIT;
	struct sl_args args = { .batch = 1 };
	struct sl_block block = { .out = { 0, 2, 0, CUDA_OUT_MAX } };

	cr_assert_eq(model.backend->run(model.backend_state, SL_T_ROWS, &args, &block, &err), -EBUSY);
	cr_assert(strstr(err.text, "larger than"), "%s", err.text);
	model.backend->close(model.backend_state);
}

Test(device, no_such_device)
{
	struct sl_error err = SL_ERROR_INIT;
	void *state;

	cr_assert_eq(sl_backend_cuda_host.open(&state, 1, &err), -ENODEV);
	cr_assert_eq(err.errnum, ENODEV);
	cr_assert(strstr(err.text, "no device 1"), "%s", err.text);
}

/* ---- the processor behind it ---- */

static unsigned count_lines(const char *says)
{
	char line[1024];
	unsigned n = 0;
	FILE *log;

	fflush(stderr);
	log = cr_get_redirected_stderr();
	while (fgets(line, sizeof(line), log)) {
		cr_assert(strstr(line, says), "%s", line);
		n++;
	}
	return n;
}

/* Whatever operation it is lost in: right bytes, one line, and no more is asked of it. */
static void lose_at(unsigned operation)
{
	struct sl_model model;
	struct device *device = device_on_host(&model, (struct cuda_counts){ .operations = operation });
	struct sample s;

	map_init(&s, 600, 600);
	for (unsigned i = 0; i < 4; i++)
		expect(&model, &s);
	unsigned n = cuda_host_counts().operations;
	expect(&model, &s);
	cr_assert_eq(cuda_host_counts().operations, n);
	expect_text(device, "cpu (device 0 (a test): a test has lost the device)");
	device_close(device);
	sample_release(&s);
}

Test(device, lost_once, .init = cr_redirect_stderr)
{
	for (unsigned operation = 1; operation <= 12; operation++)
		lose_at(operation);
	cr_assert_eq(count_lines("device 0 (a test): a test has lost the device; the processor computes from now on"),
		     12);
}

/* No memory for even one worker: it is full. */
Test(device, full_at_once, .init = cr_redirect_stderr)
{
	for (unsigned allocation = 1; allocation <= 6; allocation++) {
		struct sl_model model;
		struct device *device = device_on_host(&model, (struct cuda_counts){ .allocations = allocation });
		struct sample s;

		map_init(&s, 60, 60);
		expect(&model, &s);
		expect(&model, &s);
		expect_text(device, "cpu (device 0 (a test): no memory for");
		device_close(device);
		sample_release(&s);
	}
	cr_assert_eq(count_lines("the processor computes from now on"), 6);
}

/* Memory for one only: the others are done without, and nothing is said. */
Test(device, full_later, .init = cr_redirect_stderr)
{
	for (unsigned allocation = 7; allocation <= 13; allocation++) {
		struct sl_model model;
		struct device *device = device_on_host(&model, (struct cuda_counts){ .allocations = allocation });
		unsigned char *first = model.backend->lease(device, 1), *second = model.backend->lease(device, 1);
		struct sample s;

		cr_assert(first);
		cr_assert_eq(second != NULL, allocation == 13);
		map_init(&s, 60, 60);
		expect(&model, &s); /* by the processor: the only worker is taken */
		model.backend->give_back(device, first);
		expect(&model, &s);
		cr_assert_eq(cuda_host_counts().launches, 1, "%u launches", cuda_host_counts().launches);
		expect_text(device, "cuda, device 0 (a test), 3.52 KiB");
		device_close(device);
		sample_release(&s);
	}
	cr_assert_eq(count_lines("nothing"), 0);
}

/* A block that is not worth it never gets there. */
Test(device, small_blocks)
{
	struct sl_model model = { 0 };
	struct device *device = device_new(&sl_backend_cuda_host, 0, "device 0 (a test)", 1 << 20);
	struct sample small, large;

	device_use(device, &model);
	map_init(&small, 100, 1000);
	map_init(&large, 1000, 2000);
	expect(&model, &small);
	expect_text(device, "cuda, device 0 (a test), not used yet");
	expect(&model, &large);
	expect_text(device, "cuda, device 0 (a test), 1.91 MiB");
	device_close(device);
	sample_release(&small);
	sample_release(&large);
}

Test(device, none)
{
	struct sl_model model = { 0 };
	struct device *device = device_new(NULL, 0, "", 0);

	device_use(device, &model);
	cr_assert_null(model.backend);
	expect_text(device, "cpu");
	device_close(device);
	device_close(NULL);
}

/* Where there is no such GPU, or no CUDA in this binary: refused, or the processor with the reason. */
Test(device, wanted)
{
	struct options options = { .device = DEVICE_NUMBER + DEVICES_MAX - 1 };
	struct sl_error err = SL_ERROR_INIT;
	struct device *device;

	cr_assert_eq(device_open(&device, &options, &err), -ENODEV);
	cr_assert(strstr(err.text, "option 'device': "), "%s", err.text);
	cr_assert_null(device);
	options.device = DEVICE_CPU;
	cr_assert_eq(device_open(&device, &options, &err), 0);
	expect_text(device, "cpu");
	device_close(device);
}

Test(device, kinds)
{
	static const struct {
		int major, minor;
		uint64_t kind;
	} kinds[] = { { 7, 5, 0 },	     { 8, 0, 1 + SL_SM80 },   { 8, 6, 1 + SL_SM80 },   { 8, 9, 1 + SL_SM89 },
		      { 9, 0, 1 + SL_SM90 }, { 10, 0, 1 + SL_SM100 }, { 10, 3, 1 + SL_SM100 }, { 12, 0, 0 } };

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		cr_assert_eq(gpu_kind(&(struct gpu){ .major = kinds[i].major, .minor = kinds[i].minor }),
			     kinds[i].kind);
}
