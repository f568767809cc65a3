/*
 * tree_text.c - the texts in the tree: README.txt, and for each tensor what it is, where its rows come from and what
 * numbers it holds.
 *
 * A file's size is told before it is read, so what has to be computed from the data stands in fields of fixed width:
 * blank while the size is found out, filled in when the file is opened.
 */
#include "fs/print.h"
#include "fs/tree_impl.h"
#include "fs/usual.h"
#include "fs/values.h"
#include "slicer/arch.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TERMS = 64, FIGURE = 24, BLOCK = 1 << 20 };

/* The layout of the options, which the engine has, in its words. */
static const char *only_name(const struct tree *tree, const struct sl_engine *engine, char *name)
{
	struct sl_layout layout = SL_LAYOUT_WHOLE;
	struct sl_error unused = SL_ERROR_INIT;

	return only_layout(tree, engine, &layout, &unused) ? tree->options.layout
							   : sl_layout_format(&layout, engine, name);
}

/* The layouts that a model can have, where there are layouts. */
static void print_layouts(FILE *out, const struct tree *tree, const struct sl_engine *engine)
{
	struct sl_layout layouts[N_USUAL_LAYOUTS];
	char name[SL_LAYOUT_NAME_MAX];
	size_t n = tree_layouts(tree, engine, layouts, N_USUAL_LAYOUTS);

	if (!engine->ranks)
		return;
	fputs("    ", out);
	if (tree->options.layout)
		fprintf(out, "%s\n", only_name(tree, engine, name));
	for (size_t i = 0; i < n && !tree->options.layout; i++)
		fprintf(out, "%s%s", i ? " " : "", sl_layout_format(&layouts[i], engine, name));
	if (!tree->options.layout)
		fprintf(out, "; any other that the model can have works by its name: %s\n", engine->layouts);
}

/* "vllm serve %s …" for one directory: the %s of a table's row is ours, not printf's. */
static void print_usage(FILE *out, const struct tree *tree, const struct sl_engine *engine)
{
	char name[SL_LAYOUT_NAME_MAX];
	const char *at = strstr(engine->usage, "%s");

	if (!at) {
		fputs(engine->usage, out);
		return;
	}
	fprintf(out, "%.*s%s/%s", (int)(at - engine->usage), engine->usage,
		tree->options.mountpoint ? tree->options.mountpoint : "MOUNTPOINT", engine->name);
	if (engine->ranks && tree->options.layout)
		fprintf(out, "/%s", only_name(tree, engine, name));
	else if (engine->ranks)
		fprintf(out, "/%sN", engine->ranks);
	fputs(at + 2, out);
}

/* The usual layouts that the model cannot have, with the reason. */
static void print_refused(FILE *out, const struct tree *tree, const struct sl_engine *engine)
{
	for (unsigned i = 0, n = tree_n_usual(tree, engine); i < n; i++) {
		struct sl_layout layout = usual_layout(i);
		struct sl_error why = SL_ERROR_INIT;

		if (tree_check_layout(tree, engine, &layout, &why))
			fprintf(out, "    not %s\n", why.text);
	}
}

static void print_engine(FILE *out, const struct tree *tree, const struct sl_engine *engine)
{
	if (!shows_engine(tree, engine))
		return;
	fprintf(out, "\n%s/ for %s (names of %s)\n", engine->name, engine->title, engine->version);
	print_layouts(out, tree, engine);
	fputs("    ", out);
	print_usage(out, tree, engine);
	fputc('\n', out);
	if (!tree->options.layout)
		print_refused(out, tree, engine);
}

static void print_readme(FILE *out, const struct tree *tree)
{
	const struct sl_model *model = tree->model;

	fprintf(out,
		"This is %s for the ranks of inference engines, mounted by rankfs:\n"
		"read-only, each file computed from the checkpoint when it is read.\n\n",
		SL_ESC(model->shards.dir));
	fprintf(out, "%s, %s, %s tensors in %u files, %s\n\n",
		model->config.architecture ? SL_ESC(model->config.architecture) : model->arch->family,
		sl_dtypes[model->dtype].name, print_count(model->shards.n_tensors).text, model->shards.n_shards,
		print_size(model->total_bytes).text);
	fputs("source/ is the original directory.\n", out);
	for (int i = 0; i < SL_N_ENGINES; i++) {
		if (sl_engines[i].older && shows_engine(tree, &sl_engines[i]))
			fprintf(out, "%s%s/ as vLLM %s has it\n", sl_engines[i - 1].older ? "" : "\n",
				sl_engines[i].name, sl_engines[i].version);
		else if (!sl_engines[i].older)
			print_engine(out, tree, &sl_engines[i]);
	}
	if (!tree->options.engine)
		fputs("\ntensors/ for people: each tensor of each rank of vLLM\n"
		      "    weight.npy (numpy.load) and weight.txt (its shape, where its rows come from, its values)\n",
		      out);
	fputs("\n.rankfs/ about this mount: status, stats, settings, version\n", out);
}

static void print_file(FILE *out, const struct sl_view *view, const struct sl_output *tensor)
{
	char path[SL_LAYOUT_PATH_MAX], rank[64];

	fprintf(out, "file    %s/", sl_layout_path(&view->layout, view->engine, path));
	if (view->engine->rank_dirs)
		fprintf(out, "%s/", rank_name(rank, sizeof(rank), &view->layout, view->stage, view->rank));
	fprintf(out, "%s\noffset  %" PRIu64 "\n", SL_ESC(view->files[tensor->file].name), tensor->off);
}

/* The rows, or elements, of the output that a term makes; its bytes when they are no whole ones. */
static void print_extent(FILE *out, const struct sl_output *tensor, const struct origin_term *term)
{
	uint64_t unit_bits = sl_dtypes[tensor->dtype].bits;

	if (tensor->n_dims > 1)
		unit_bits *= tensor->shape[tensor->n_dims - 1];
	if (term->off * 8 % unit_bits == 0 && term->len * 8 % unit_bits == 0)
		fprintf(out, "[%" PRIu64 ":%" PRIu64 "] = ", term->off * 8 / unit_bits,
			(term->off + term->len) * 8 / unit_bits);
	else
		fprintf(out, "bytes [%" PRIu64 ":%" PRIu64 "] = ", term->off, term->off + term->len);
}

static int print_terms(FILE *out, const struct tree *tree, const struct sl_output *tensor, struct sl_error *err)
{
	struct origin_walk walk;
	struct origin_term term;
	unsigned n = 0;
	int rc = origin_walk_init(&walk, tree->origins, tensor);

	fputs("source  ", out);
	for (; rc == 0 && origin_walk_next(&walk, &term); n++) {
		if (n >= MAX_TERMS)
			continue;
		fputs(n ? "        " : "", out);
		print_extent(out, tensor, &term);
		origin_print_term(out, &walk, &term);
		fputc('\n', out);
	}
	if (n > MAX_TERMS)
		fprintf(out, "        … and %u more\n", n - MAX_TERMS);
	else if (n == 0)
		fputs("none\n", out);
	origin_walk_release(&walk);
	return rc ? sl_fail(err, -rc, "no memory for the sources of '%s'", SL_ESC(tensor->name)) : 0;
}

/* A number, or as many blanks. */
static void print_number(FILE *out, double value, bool shown)
{
	char text[FIGURE + 1] = "";

	if (shown)
		snprintf(text, sizeof(text), "%.9g", value);
	fprintf(out, "%-*s", FIGURE, text);
}

static void print_values(FILE *out, const struct values *v, bool known)
{
	const uint64_t n_finite = v->n - v->n_nan - v->n_inf;
	bool shown = known && n_finite > 0;

	fputs("min     ", out);
	print_number(out, v->min, shown);
	fputs("\nmax     ", out);
	print_number(out, v->max, shown);
	fputs("\nmean    ", out);
	print_number(out, v->sum / (double)n_finite, shown);
	fputs("\nnan     ", out);
	print_number(out, (double)v->n_nan, known);
	fputs("\ninf     ", out);
	print_number(out, (double)v->n_inf, known);
	fputs("\nfirst   ", out);
	for (unsigned i = 0; i < VALUES_FIRST; i++) {
		fputs(i ? "\n        " : "", out);
		print_number(out, v->first[i], known && i < v->n_first);
	}
	fputc('\n', out);
}

static int read_values(struct values *values, const struct sl_view *view, const struct sl_output *tensor,
		       struct sl_error *err)
{
	unsigned char *block = malloc(BLOCK);
	ssize_t got = 1;

	if (!block)
		return sl_fail(err, ENOMEM, "no memory for a block of '%s'", SL_ESC(tensor->name));
	for (uint64_t at = 0; at < tensor->len && got > 0; at += (uint64_t)got) {
		uint64_t left = tensor->len - at;

		got = sl_file_read(&view->files[tensor->file], block, tensor->off + at, left < BLOCK ? left : BLOCK,
				   err);
		if (got > 0)
			values_add(values, tensor->dtype, block, (size_t)got);
	}
	free(block);
	return got < 0 ? (int)got : 0;
}

static int print_tensor(FILE *out, const struct tree *tree, const struct node *node, bool with_values,
			struct sl_error *err)
{
	const struct sl_output *tensor = node->tensor;
	struct values values;
	int rc = 0;

	fputs("name    ", out);
	print_escaped(out, tensor->name);
	fprintf(out, "\ndtype   %s\nshape   ", sl_dtypes[tensor->dtype].name);
	origin_print_shape(out, tensor->shape, tensor->n_dims);
	fprintf(out, "\nbytes   %" PRIu64 "\n", tensor->len);
	print_file(out, node->view, tensor);
	rc = print_terms(out, tree, tensor, err);
	if (rc || !values_known(tensor->dtype))
		return rc;
	values_init(&values);
	if (with_values)
		rc = read_values(&values, node->view, tensor, err);
	print_values(out, &values, with_values);
	return rc;
}

int text_make(char **text, size_t *len, const struct tree *tree, const struct node *node, bool values,
	      struct sl_error *err)
{
	FILE *out = open_memstream(text, len);
	int rc = 0;

	if (!out)
		return sl_fail(err, ENOMEM, "no memory for the text of '%s'", SL_ESC(node->name));
	if (node->tensor)
		rc = print_tensor(out, tree, node, values, err);
	else
		print_readme(out, tree);
	if (rc == 0 && ferror(out))
		rc = sl_fail(err, ENOMEM, "no memory for the text of '%s'", SL_ESC(node->name));
	if (fclose(out) && rc == 0)
		rc = sl_fail(err, ENOMEM, "no memory for the text of '%s'", SL_ESC(node->name));
	if (rc) {
		free(*text);
		*text = NULL;
	}
	return rc;
}
