/*
 * case.c - one recipe on the tensors of one file:
 *
 *      kernel-case DIR RECIPE [KEY=VALUE …] >OUT.safetensors
 *      kernel-case --gpu                                           is there one? exit 77 and the reason if not
 *
 * DIR holds one safetensors file whose tensors "in.NAME" are the module's loaded ones. What the recipe makes comes out as a
 * weight file, read as the option says: whole, or in random chunks (chunks=SEED), and computed by
 *
 *      device=cpu         the processor's functions
 *      device=units       the definition, unit by unit
 *      device=cuda-host   the backend for GPUs, on the processor; with full=N or lost=N the device fails from its N-th allocation or
 *                         operation on, and the processor must have taken over
 *      device=cuda        a GPU
 *      device=bench       a GPU, and says how fast (bench.h); bench-host: the same on the processor
 *
 * check.py compares.
 */
#include "cuda/backend.h"
#include "fs/device.h"
#include "slicer/model.h"
#include "slicer/post.h"
#include "tests/kernel/bench.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct sl_error err;
static unsigned chunks;

/* ---- a backend that follows the definition, unit by unit ---- */

static int run_units(void *state, unsigned id, const struct sl_args *args, const struct sl_block *block,
		     struct sl_error *e)
{
	const struct sl_transform_row *row = sl_transforms[id];
	uint64_t n = row->units(args, block);

	(void)state, (void)e;
	for (uint64_t i = n; i-- > 0;) /* in any order */
		row->unit(args, block, i);
	return 0;
}

static const struct sl_backend backend_units = { .name = "units", .run = run_units };

/* ---- who computes ---- */

#if HAVE_CUDA
static const struct sl_backend *const gpu = &sl_backend_cuda;
static const struct cuda_runtime *const gpu_runtime = &cuda_runtime;
#else
static const struct sl_backend *const gpu = NULL;
static const struct cuda_runtime *const gpu_runtime = NULL;
#endif

static struct cuda_counts fail_from;
static const char *who = "cpu";
static struct device *device; /* with the processor behind it */

static int open_gpu(void **state)
{
	return gpu ? gpu->open(state, -1, &err) : sl_fail(&err, ENODEV, "built without CUDA");
}

static int no_gpu(void)
{
	void *state;

	if (open_gpu(&state) == 0) {
		gpu->close(state);
		return 0;
	}
	printf("no GPU here: %s\n", err.text);
	return 77;
}

/* Without faults to come, what a device cannot do is an error. */
static int open_host(struct sl_model *model)
{
	cuda_host_fail(fail_from);
	if (!fail_from.allocations && !fail_from.operations) {
		model->backend = &sl_backend_cuda_host;
		return model->backend->open(&model->backend_state, -1, &err);
	}
	device = device_new(&sl_backend_cuda_host, 0, "the test's device", 0);
	if (!device)
		return sl_fail(&err, ENOMEM, "out of memory");
	device_use(device, model);
	return 0;
}

static int open_bench(struct sl_model *model, const struct cuda_runtime *runtime)
{
	if (!runtime)
		return sl_fail(&err, ENODEV, "built without CUDA");
	bench_use(runtime);
	model->backend = &bench_backend;
	return model->backend->open(&model->backend_state, -1, &err);
}

static int open_backend(struct sl_model *model)
{
	if (!strcmp(who, "units"))
		model->backend = &backend_units;
	else if (!strcmp(who, "cuda-host"))
		return open_host(model);
	else if (!strcmp(who, "cuda"))
		return model->backend = gpu, open_gpu(&model->backend_state);
	else if (!strcmp(who, "bench") || !strcmp(who, "bench-host"))
		return open_bench(model, strcmp(who, "bench") ? &cuda_host_runtime : gpu_runtime);
	else if (strcmp(who, "cpu") != 0)
		return sl_fail(&err, EINVAL, "device %s is not known", who);
	return 0;
}

/* If the fault came, it must have been noticed. A worker more that cannot be had is none. */
static int check_fault(void)
{
	struct cuda_counts counts = cuda_host_counts();
	bool due = (fail_from.operations && counts.operations >= fail_from.operations) ||
		   (fail_from.allocations == 1 && counts.allocations);
	char text[600];

	if (device && strncmp(device_text(device, text, sizeof(text)), due ? "cpu (" : "cuda", 4) != 0)
		return sl_fail(&err, EINVAL, "after operation %u: %s", counts.operations, text);
	return 0;
}

static void close_backend(struct sl_model *model)
{
	if (!device && model->backend_state)
		model->backend->close(model->backend_state);
	device_close(device);
}

/* ---- arguments ---- */

static uint64_t number(const char *text)
{
	return strtoull(text, NULL, 10);
}

/* "128,128" */
static unsigned numbers(const char *text, uint64_t *list, unsigned max)
{
	unsigned n = 0;

	for (char *end = NULL; n < max && *text; text = *end ? end + 1 : end)
		list[n++] = strtoull(text, &end, 10);
	return n;
}

static int set_dtype(struct sl_post_facts *facts, const char *name)
{
	for (int d = 0; d < SL_N_DTYPES; d++) {
		if (sl_dtypes[d].torch && strcmp(sl_dtypes[d].torch, name) == 0) {
			facts->dtype = (enum sl_dtype)d;
			return 0;
		}
	}
	return sl_fail(&err, EINVAL, "dtype %s is not known", name);
}

/* Keys of the cases' own parameters, and ours. Those that only describe shapes are passed over. */
static int set(struct sl_post_facts *f, const char *key, const char *value)
{
	static const char *const shapes[] = { "n",  "k",	  "m",	    "experts", "size_k", "size_n",
					      "zp", "aligned_mn", "padded", "query",   "answer" };

	if (!strcmp(key, "logical_widths"))
		f->n_widths = numbers(value, f->widths, SL_WIDTHS_MAX);
	else if (!strcmp(key, "shard"))
		f->widths[0] = f->widths[1] = number(value), f->n_widths = 2;
	else if (!strcmp(key, "block"))
		f->block[1] = numbers(value, f->block, 2) == 1 ? f->block[0] : f->block[1];
	else if (!strcmp(key, "bits"))
		f->bits = (unsigned)number(value);
	else if (!strcmp(key, "group"))
		f->group = *value == '-' ? 0 : number(value);
	else if (!strcmp(key, "i"))
		f->inter = number(value);
	else if (!strcmp(key, "h"))
		f->hidden = number(value);
	else if (!strcmp(key, "heads"))
		f->heads = number(value);
	else if (!strcmp(key, "nope"))
		f->nope = number(value);
	else if (!strcmp(key, "v"))
		f->v = number(value);
	else if (!strcmp(key, "rank"))
		f->rank = number(value);
	else if (!strcmp(key, "alignment") || !strcmp(key, "gran_mn"))
		f->align = number(value);
	else if (!strcmp(key, "mn"))
		f->rows = number(value);
	else if (!strcmp(key, "refine"))
		numbers(value, f->refine, 2);
	else if (!strcmp(key, "tp"))
		f->ranks = (unsigned)number(value);
	else if (!strcmp(key, "a8"))
		f->act8 = number(value);
	else if (!strcmp(key, "cpu"))
		f->cpu = number(value);
	else if (!strcmp(key, "gated"))
		f->gated = number(value);
	else if (!strcmp(key, "symmetric"))
		f->symmetric = number(value);
	else if (!strcmp(key, "static"))
		f->fixed = number(value);
	else if (!strcmp(key, "backend"))
		f->backend = value;
	else if (!strcmp(key, "dtype"))
		return set_dtype(f, value);
	else if (!strcmp(key, "chunks"))
		chunks = (unsigned)number(value);
	else if (!strcmp(key, "device"))
		who = value;
	else if (!strcmp(key, "full"))
		fail_from.allocations = (unsigned)number(value);
	else if (!strcmp(key, "lost"))
		fail_from.operations = (unsigned)number(value);
	else {
		for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
			if (!strcmp(key, shapes[i]))
				return 0;
		}
		return sl_fail(&err, EINVAL, "parameter %s is not known", key);
	}
	return 0;
}

static int parse(struct sl_post_facts *facts, char **argv)
{
	int ret = 0;

	facts->gated = true;
	for (; *argv && !ret; argv++) {
		char *equals = strchr(*argv, '=');
		if (!equals)
			return sl_fail(&err, EINVAL, "%s is no KEY=VALUE", *argv);
		*equals = '\0';
		ret = set(facts, *argv, equals + 1);
	}
	return ret;
}

/* ---- tensors in, tensors out ---- */

/* Every tensor "in.NAME" of the file, as one piece. */
static unsigned load(const struct sl_model *model, struct sl_loaded *loaded, struct sl_piece *pieces)
{
	unsigned n = 0;

	for (uint32_t i = 0; i < model->shards.n_tensors; i++) {
		const struct sl_tensor *t = &model->shards.tensors[i];
		if (strncmp(t->name, "in.", 3) != 0)
			continue;
		pieces[n] = (struct sl_piece){ .len = t->len,
					       .src = t->off,
					       .run = t->len,
					       .stride = t->len,
					       .count = 1,
					       .shard = t->shard,
					       .op = SL_OP_COPY,
					       .from = t->dtype,
					       .to = t->dtype };
		loaded[n] = (struct sl_loaded){ .name = t->name + 3,
						.shape = t->shape,
						.dtype = (enum sl_dtype)t->dtype,
						.n_dims = t->n_dims,
						.len = t->len,
						.pieces = &pieces[n],
						.n_pieces = 1 };
		n++;
	}
	return n;
}

static char *file_name(const struct sl_plan *plan, uint32_t i, uint32_t n)
{
	(void)i, (void)n;
	return sl_arena_strdup(&plan->view->arena, "out.safetensors");
}

/* Whole, or in chunks whose bounds are anywhere. */
static int read_file(const struct sl_file *file, unsigned char *bytes)
{
	for (uint64_t at = 0, len = file->size; at < file->size; at += len) {
		len = file->size - at;
		if (chunks) {
			chunks = chunks * 1103515245u + 12345u;
			uint64_t most = (chunks >> 8) % 3 ? 97 : 40000;
			len = 1 + (chunks >> 10) % most < len ? 1 + (chunks >> 10) % most : len;
		}
		ssize_t got = sl_file_read(file, bytes + at, at, len, &err);
		if (got < 0)
			return (int)got;
	}
	return 0;
}

static int write_all(const unsigned char *bytes, uint64_t len)
{
	for (ssize_t n; len > 0; bytes += n, len -= (uint64_t)n) {
		n = write(STDOUT_FILENO, bytes, len);
		if (n <= 0)
			return sl_fail(&err, errno, "stdout: %s", strerror(errno));
	}
	return 0;
}

static int write_files(const struct sl_view *view)
{
	int ret = 0;

	for (uint32_t i = 0; i < view->n_weights && !ret; i++) {
		unsigned char *bytes = malloc(view->files[i].size);
		ret = bytes ? read_file(&view->files[i], bytes) : -ENOMEM;
		if (!ret)
			ret = write_all(bytes, view->files[i].size);
		free(bytes);
	}
	return ret;
}

static int make(struct sl_model *model, const struct sl_recipe *recipe, char **argv)
{
	static struct sl_loaded loaded[64];
	static struct sl_piece pieces[64];
	struct sl_engine engine = { .name = "case", .file_name = file_name };
	struct sl_view view = { .model = model, .engine = &engine };
	struct sl_plan plan = {
		.view = &view, .model = model, .engine = &engine, .part_bytes = UINT64_MAX, .err = &err
	};
	struct sl_post post = { .plan = &plan, .prefix = "", .loaded = loaded };

	if (model->shards.n_tensors > 64)
		return sl_fail(&err, EINVAL, "more than 64 tensors");
	sl_arena_init(&view.arena);
	post.n_loaded = load(model, loaded, pieces);
	int ret = parse(&post.facts, argv);
	if (!ret)
		ret = open_backend(model);
	if (!ret)
		ret = recipe->make(&post);
	if (!ret)
		ret = sl_safetensors.lay(&plan);
	if (!ret)
		ret = write_files(&view);
	if (!ret)
		ret = check_fault();
	close_backend(model);
	sl_plan_release(&plan);
	sl_arena_release(&view.arena);
	return ret;
}

int main(int argc, char **argv)
{
	static struct sl_model model;
	if (argc == 2 && !strcmp(argv[1], "--gpu"))
		return no_gpu();

	const struct sl_recipe *recipe = argc > 2 ? sl_recipe_find(argv[2]) : NULL;

	if (!recipe) {
		fprintf(stderr, "kernel-case: no recipe %s\n", argc > 2 ? argv[2] : "named");
		return 3;
	}
	sl_arena_init(&model.arena);
	int ret = sl_shards_open(&model.shards, argv[1], SL_FORMAT_AUTO, &model.arena, &err);
	if (!ret) {
		ret = make(&model, recipe, argv + 3);
		sl_shards_close(&model.shards);
	}
	sl_arena_release(&model.arena);
	if (ret)
		fprintf(stderr, "kernel-case: %s\n", err.text);
	return ret ? 1 : 0;
}
