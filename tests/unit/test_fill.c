/*
 * test_fill.c - filling several files at once, in windows of the source, against reading each of them piece by piece; and
 * sources that shrink or change meanwhile.
 */
#include "cuda/backend.h"
#include "fs/fill.h"
#include "fs/guard.h"
#include "slicer/series.h"
#include "slicer/transform.h"
#include "slicer/transforms/rows.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define SOURCE	(24u << 20) /* three windows */
#define RANKS	4u
#define PIECES	24u
#define N_ROUND 20

static struct sl_shard shard = { .name = "model.safetensors", .fd = -1 };
static struct sl_model model = { .shards = { .shards = &shard, .n_shards = 1 } };
static unsigned char data[300];

static void make_source(void)
{
	unsigned char *bytes = malloc(SOURCE);
	struct sl_error err = SL_ERROR_INIT;
	struct stat st;

	cr_assert(bytes != NULL);
	for (size_t i = 0; i < SOURCE; i++)
		bytes[i] = (unsigned char)(i * 2654435761u >> 13);
	shard.fd = memfd_create("source", MFD_CLOEXEC);
	cr_assert_eq(write(shard.fd, bytes, SOURCE), SOURCE);
	free(bytes);
	fstat(shard.fd, &st);
	shard.size = SOURCE;
	shard.mtime_ns = st.st_mtim.tv_sec * INT64_C(1000000000) + st.st_mtim.tv_nsec;
	cr_assert_eq(guard_install(&err), 0);
}

TestSuite(fill, .init = make_source, .timeout = 120);

static uint64_t below(uint64_t n)
{
	return (uint64_t)random() % n;
}

/* Runs of one rank of RANKS side by side, as a column slice, a row slice, or a few runs far apart. */
static struct sl_piece copied(unsigned rank)
{
	static const uint64_t runs[] = { 2, 62, 768, 4096, 70000, 20000 };
	struct sl_piece p = { .op = SL_OP_COPY, .run = runs[below(6)], .src = below(1 << 20) };
	uint64_t width = RANKS * p.run, room = SOURCE - p.src - width;

	p.src += rank * p.run;
	p.stride = below(8) ? width : width + 300000;
	p.count = (uint32_t)(1 + below(1 + (room / p.stride < 5000 ? room / p.stride : 5000)));
	if (!below(4)) {
		p.count = 1;
		p.run = 1 + below(SOURCE - p.src);
		p.stride = p.run;
	}
	p.len = p.count * p.run;
	return p;
}

/* Experts of two tensors each, somewhere in the source; of a rank a part of the first one's columns, zeros, all of the second,
 * and columns of the first with a zero one beside them. */
#define EXPERTS 9u

static struct sl_piece series_of(unsigned rank)
{
	static struct sl_tensor tensors[2 * EXPERTS];
	static struct sl_bound modules[EXPERTS];
	static const struct sl_lane lanes[2] = { { modules, 0 }, { modules, 1 } };
	static struct sl_piece pieces[RANKS][4], columns[RANKS][2];
	static struct sl_compound compounds[RANKS];
	static struct sl_series series[RANKS];

	for (uint32_t i = 0; i < 2 * EXPERTS; i++) {
		tensors[i] = (struct sl_tensor){ .off = i * 7 % (2 * EXPERTS) * (1u << 20) + i, .len = 1 << 20 };
		modules[i / 2].tensors[i % 2] = i + 1;
	}
	model.shards.tensors = tensors;
	model.shards.n_tensors = 2 * EXPERTS;
	columns[rank][0] = (struct sl_piece){
		.len = 6000, .src = 100 * rank, .run = 60, .stride = 400, .count = 100, .op = SL_OP_COPY
	};
	columns[rank][1] = (struct sl_piece){ .off = 60, .len = 400, .count = 100, .op = SL_OP_ZERO };
	compounds[rank] = (struct sl_compound){ .n = 2, .parts = columns[rank] };
	pieces[rank][0] = columns[rank][0];
	pieces[rank][1] = (struct sl_piece){ .off = 6000, .len = 1000, .op = SL_OP_ZERO };
	pieces[rank][2] = (struct sl_piece){
		.off = 7000, .len = 70000, .run = 70000, .stride = 70000, .count = 1, .shard = 1, .op = SL_OP_COPY
	};
	pieces[rank][3] = (struct sl_piece){
		.off = 77000, .len = 6400, .run = 64, .count = 100, .op = SL_OP_COLUMNS, .compound = &compounds[rank]
	};
	series[rank] = (struct sl_series){ .len = 83400,
					   .n = 4,
					   .first = rank % 2,
					   .step = 2,
					   .n_pieces = 4,
					   .pieces = pieces[rank],
					   .lanes = lanes };
	return (struct sl_piece){ .len = 4 * 83400, .op = SL_OP_SERIES, .series = &series[rank] };
}

static struct sl_piece any_piece(unsigned rank)
{
	uint64_t kind = below(7);

	if (kind == 6)
		return series_of(rank);

	if (kind == 0)
		return (struct sl_piece){ .op = SL_OP_ZERO, .len = 1 + below(9 << 20) };
	if (kind == 1)
		return (struct sl_piece){ .op = SL_OP_DATA, .len = 1 + below(sizeof(data)), .data = data };
	return copied(rank);
}

/* The files of RANKS ranks: the same pieces, each rank's own. */
static void make_files(struct sl_file *files, struct sl_piece (*pieces)[PIECES], long seed)
{
	for (unsigned r = 0; r < RANKS; r++) {
		srandom((unsigned)seed);
		files[r] = (struct sl_file){ .name = "part", .model = &model, .pieces = pieces[r] };
		files[r].n_pieces = (uint32_t)(1 + below(PIECES));
		for (uint32_t i = 0; i < files[r].n_pieces; i++) {
			pieces[r][i] = any_piece(r);
			pieces[r][i].off = files[r].size;
			files[r].size += pieces[r][i].len;
		}
	}
}

static void make_targets(struct fill_target *targets, const struct sl_file *files)
{
	for (unsigned r = 0; r < RANKS; r++) {
		targets[r].file = &files[r];
		targets[r].bytes = malloc(files[r].size);
		cr_assert(targets[r].bytes != NULL);
		memset(targets[r].bytes, 0xEE, files[r].size);
	}
}

static void free_targets(struct fill_target *targets)
{
	for (unsigned r = 0; r < RANKS; r++)
		free(targets[r].bytes);
}

/* All units, from the last to the first: no order is promised. */
static int run(struct fill *fill, struct sl_error *err)
{
	int rc = 0;

	for (size_t unit = fill_n_units(fill); !rc && unit-- > 0;) {
		if (unit % 2 || fill_must_read(fill, unit))
			fill_read(fill, unit);
		rc = fill_unit(fill, unit, err);
	}
	return rc ? rc : fill_verify(fill, err);
}

static void compare(const struct fill_target *target, long seed)
{
	struct sl_error err = SL_ERROR_INIT;
	unsigned char *want = malloc(target->file->size);

	cr_assert_eq(sl_file_read(target->file, want, 0, target->file->size, &err), (ssize_t)target->file->size, "%s",
		     err.text);
	for (size_t i = 0; i < target->file->size; i++)
		cr_assert_eq(want[i], target->bytes[i], "seed %ld: byte %zu of %zu", seed, i,
			     (size_t)target->file->size);
	free(want);
}

Test(fill, ranks_together_get_the_bytes_of_sl_file_read)
{
	struct sl_piece pieces[RANKS][PIECES];
	struct sl_file files[RANKS];

	for (long seed = 0; seed < N_ROUND; seed++) {
		struct sl_error err = SL_ERROR_INIT;
		struct fill_target targets[RANKS];
		size_t n = seed % 2 ? RANKS : 1;
		struct fill *fill;

		make_files(files, pieces, seed);
		make_targets(targets, files);
		cr_assert_eq(fill_open(&fill, &model, targets, n, &err), 0, "%s", err.text);
		cr_assert_eq(run(fill, &err), 0, "seed %ld: %s", seed, err.text);
		for (size_t r = 0; r < n; r++)
			compare(&targets[r], seed);
		fill_close(fill);
		free_targets(targets);
	}
}

static int fill_whole(struct sl_error *err)
{
	struct sl_piece piece = { .op = SL_OP_COPY, .len = SOURCE, .run = SOURCE, .stride = SOURCE, .count = 1 };
	struct sl_file file = { .name = "part", .size = SOURCE, .model = &model, .pieces = &piece, .n_pieces = 1 };
	struct fill_target target = { &file, malloc(SOURCE) };
	struct fill *fill;
	int rc;

	cr_assert_eq(fill_open(&fill, &model, &target, 1, err), 0);
	rc = run(fill, err);
	fill_close(fill);
	free(target.bytes);
	return rc;
}

Test(fill, a_source_that_shrinks_is_an_error_and_no_signal)
{
	struct sl_error err = SL_ERROR_INIT;

	cr_assert_eq(ftruncate(shard.fd, SOURCE / 2), 0);
	cr_assert_eq(fill_whole(&err), -ESTALE);
	cr_assert(strstr(err.text, "model.safetensors: ") && strstr(err.text, "changed while mounted"), "%s", err.text);
}

Test(fill, a_source_that_was_written_to_is_noticed)
{
	struct sl_error err = SL_ERROR_INIT;

	cr_assert_eq(pwrite(shard.fd, "x", 1, 5), 1);
	shard.mtime_ns -= 1;
	cr_assert_eq(fill_whole(&err), -ESTALE, "%s", err.text);
}

Test(fill, a_piece_beyond_its_shard_is_refused)
{
	struct sl_piece piece = {
		.op = SL_OP_COPY, .src = SOURCE - 10, .len = 20, .run = 20, .stride = 20, .count = 1
	};
	struct sl_file file = { .name = "part", .size = 20, .model = &model, .pieces = &piece, .n_pieces = 1 };
	unsigned char bytes[20];
	struct fill_target target = { &file, bytes };
	struct sl_error err = SL_ERROR_INIT;
	struct fill *fill;

	cr_assert_eq(fill_open(&fill, &model, &target, 1, &err), 0);
	cr_assert_eq(run(fill, &err), -EIO);
	fill_close(fill);
}

/* Cut off in the middle of a block, again and again: what the thread had of the device is free each time. */
Test(fill, no_memory_for_what_a_device_computes)
{
	enum { ROWS = 64, LEN = ROWS * 4096 };
	struct sl_piece source = { .op = SL_OP_ZERO, .len = LEN };
	struct sl_transform t = { .id = SL_T_ROWS, .n_inputs = 1 };
	struct sl_compound compound = { .n = 1, .parts = &source, .transform = &t };
	struct sl_piece piece = {
		.op = SL_OP_TRANSFORM, .len = LEN, .run = LEN / ROWS, .count = ROWS, .compound = &compound
	};
	struct sl_model with_device = { .backend = &sl_backend_cuda_host };
	struct sl_file file = { .name = "part", .size = LEN, .model = &with_device, .pieces = &piece, .n_pieces = 1 };
	int none = memfd_create("no memory", MFD_CLOEXEC);
	struct fill_target target = { &file, mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED, none, 0) };
	struct sl_error err = SL_ERROR_INIT;

	t.args = (struct sl_args){ .batch = 1, .rows = ROWS, .row_bytes = LEN / ROWS };
	t.args.in[0].rows = ROWS;
	t.args.in[0].row_bytes = LEN / ROWS;
	t.args.p[SL_ROWS_M] = ROWS;
	t.in[0] = (struct sl_stream){ .pieces = &source, .n = 1, .stride = LEN, .pitch = LEN / ROWS };
	cr_assert_eq(with_device.backend->open(&with_device.backend_state, -1, &err), 0);
	for (unsigned i = 0; i < CUDA_WORKERS + 4; i++) {
		struct fill *fill;
		err = (struct sl_error)SL_ERROR_INIT;
		cr_assert_eq(fill_open(&fill, &with_device, &target, 1, &err), 0);
		cr_assert_eq(fill_unit(fill, 0, &err), -EIO);
		cr_assert(strstr(err.text, "no memory to hold a staged file"), "%s", err.text);
		fill_close(fill);
	}
	cr_assert_eq(cuda_host_counts().launches, CUDA_WORKERS + 4);
	with_device.backend->close(with_device.backend_state);
	munmap(target.bytes, LEN);
	close(none);
}
