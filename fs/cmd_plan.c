/*
 * cmd_plan.c - rankfs plan SOURCE [PATH]: what each file of a directory will hold, and from where.
 *
 *      # vllm/tp2/model-rank-1-part-0.safetensors, 131144 bytes
 *      model.embed_tokens.weight BF16 [256, 256] = model.embed_tokens.weight[256:512]
 *
 * Without a PATH: the model, and which layouts it can have.
 */
#include "fs/arguments.h"
#include "fs/command.h"
#include "fs/origin.h"
#include "fs/print.h"
#include "fs/usual.h"
#include "slicer/post.h"
#include "slicer/series.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct plan {
	struct target target;
	struct origins *origins;
	bool as_json;
	struct json_writer json;
	/* The tensors of one view by file, since files come view by view. */
	const struct sl_view *view;
	const struct sl_output **by_file;
};

static int compare_outputs(const void *a, const void *b)
{
	const struct sl_output *x = *(const struct sl_output *const *)a, *y = *(const struct sl_output *const *)b;

	if (x->file != y->file)
		return x->file < y->file ? -1 : 1;
	if (x->off != y->off)
		return x->off < y->off ? -1 : 1;
	return x < y ? -1 : x > y;
}

static int sort_view(struct plan *plan, const struct sl_view *view, struct sl_error *err)
{
	if (plan->view == view)
		return 0;
	free(plan->by_file);
	plan->view = NULL;
	plan->by_file = calloc(view->n_tensors + 1u, sizeof(*plan->by_file));
	if (!plan->by_file)
		return sl_fail(err, ENOMEM, "no memory for %u tensors", view->n_tensors);
	for (uint32_t i = 0; i < view->n_tensors; i++)
		plan->by_file[i] = &view->tensors[i];
	qsort(plan->by_file, view->n_tensors, sizeof(*plan->by_file), compare_outputs);
	plan->view = view;
	return 0;
}

static int print_tensor(struct plan *plan, const struct sl_output *tensor, struct sl_error *err)
{
	int rc;

	print_escaped(stdout, tensor->name);
	printf(" %s ", sl_dtypes[tensor->dtype].name);
	origin_print_shape(stdout, tensor->shape, tensor->n_dims);
	fputs(" = ", stdout);
	if (tensor->done)
		printf("%s: ", tensor->done->recipe->name);
	rc = origin_print(stdout, plan->origins, tensor);
	putchar('\n');
	return rc ? sl_fail(err, -rc, "no memory for the plan of '%s'", SL_ESC(tensor->name)) : 0;
}

static void json_piece(struct plan *plan, const struct sl_piece *piece)
{
	const struct sl_shards *shards = &plan->target.model->shards;
	const struct sl_parts parts = sl_piece_parts(piece);
	const struct sl_tensor *tensor;

	json_begin(&plan->json, NULL, '{');
	json_string(&plan->json, "op", sl_op_name((enum sl_op)piece->op));
	json_number(&plan->json, "offset", piece->off);
	json_number(&plan->json, "bytes", piece->len);
	if (parts.list != piece) {
		json_begin(&plan->json, "parts", '[');
		for (uint32_t i = 0; i < parts.n; i++)
			json_piece(plan, &parts.list[i]); /* no part has parts */
		json_end(&plan->json, ']');
	}
	if (sl_piece_reads(piece)) {
		tensor = origins_find(plan->origins, piece->shard, piece->src);
		json_string(&plan->json, "tensor", tensor ? tensor->name : "");
		json_string(&plan->json, "file", shards->shards[piece->shard].name);
		json_number(&plan->json, "from", piece->src);
		json_number(&plan->json, "run", piece->run);
		json_number(&plan->json, "stride", piece->stride);
		json_number(&plan->json, "count", piece->count);
	}
	json_end(&plan->json, '}');
}

static int json_tensor(struct plan *plan, const struct sl_output *tensor, struct sl_error *err)
{
	struct sl_made_piece made;
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);
	int rc;

	if (!out)
		return sl_fail(err, ENOMEM, "no memory for the plan of '%s'", SL_ESC(tensor->name));
	rc = origin_print(out, plan->origins, tensor);
	if (fclose(out) || rc) {
		free(text);
		return sl_fail(err, ENOMEM, "no memory for the plan of '%s'", SL_ESC(tensor->name));
	}
	json_begin(&plan->json, NULL, '{');
	json_string(&plan->json, "name", tensor->name);
	json_string(&plan->json, "dtype", sl_dtypes[tensor->dtype].name);
	if (tensor->done)
		json_string(&plan->json, "recipe", tensor->done->recipe->name);
	json_begin(&plan->json, "shape", '[');
	for (unsigned d = 0; d < tensor->n_dims; d++)
		json_number(&plan->json, NULL, tensor->shape[d]);
	json_end(&plan->json, ']');
	json_number(&plan->json, "offset", tensor->off);
	json_number(&plan->json, "bytes", tensor->len);
	json_string(&plan->json, "source", text);
	json_begin(&plan->json, "pieces", '[');
	for (uint32_t i = 0; i < tensor->n_pieces; i++) {
		for (uint64_t j = 0; j < sl_piece_count(&tensor->pieces[i]); j++)
			json_piece(plan, sl_piece_at(plan->target.model, &tensor->pieces[i], j, &made));
	}
	json_end(&plan->json, ']');
	json_end(&plan->json, '}');
	free(text);
	return 0;
}

static int plan_tensor(struct plan *plan, const struct sl_output *tensor, struct sl_error *err)
{
	if (plan->as_json)
		return json_tensor(plan, tensor, err);
	return print_tensor(plan, tensor, err);
}

/* The first tensor of a file, in by_file. */
static uint32_t first_of_file(const struct plan *plan, uint32_t file)
{
	uint32_t low = 0, high = plan->view->n_tensors;

	while (low < high) {
		uint32_t mid = low + (high - low) / 2;

		if (plan->by_file[mid]->file < file)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

/* Of a weight file all tensors, in the order of their bytes. */
static int plan_tensors(struct plan *plan, const struct node *node, struct sl_error *err)
{
	const struct sl_view *view = node->view;
	uint32_t file;
	int rc;

	if (node->tensor)
		return plan_tensor(plan, node->tensor, err);
	rc = sort_view(plan, view, err);
	if (rc)
		return rc;
	file = (uint32_t)(node->file - view->files);
	for (uint32_t i = first_of_file(plan, file); i < view->n_tensors && plan->by_file[i]->file == file; i++) {
		rc = plan_tensor(plan, plan->by_file[i], err);
		if (rc)
			return rc;
	}
	return 0;
}

static bool is_weights(const struct node *node)
{
	return node->kind == NODE_FILE &&
	       (node->tensor || (uint32_t)(node->file - node->view->files) < node->view->n_weights);
}

/* The file of the source that a file equals, or NULL. */
static const char *source_of(const struct plan *plan, const struct node *node)
{
	if (node->kind == NODE_SOURCE)
		return node->path;
	if (node->kind == NODE_FILE && node->file->identical)
		return plan->target.model->shards.shards[node->file->identical - 1].name;
	return NULL;
}

static void print_file(const struct plan *plan, const struct node *node, const char *path)
{
	const char *source = strncmp(path, "source/", 7) == 0 ? NULL : source_of(plan, node);

	fputs(print_colour(stdout, COLOUR_BOLD), stdout);
	fputs("# ", stdout);
	print_escaped(stdout, path);
	printf("%s, %" PRIu64 " bytes", print_colour(stdout, COLOUR_OFF), node->size);
	if (source) {
		fputs(" = source/", stdout);
		print_escaped(stdout, source);
	} else if (node->kind != NODE_SOURCE && !is_weights(node)) {
		fputs(", computed", stdout);
	}
	putchar('\n');
}

static int json_file(struct plan *plan, const struct node *node, const char *path, struct sl_error *err)
{
	const char *source = source_of(plan, node);
	int rc = 0;

	json_begin(&plan->json, NULL, '{');
	json_string(&plan->json, "path", path);
	json_number(&plan->json, "bytes", node->size);
	if (source)
		json_string(&plan->json, "source", source);
	if (is_weights(node)) {
		json_begin(&plan->json, "tensors", '[');
		rc = plan_tensors(plan, node, err);
		json_end(&plan->json, ']');
	}
	json_end(&plan->json, '}');
	return rc;
}

static int plan_node(struct plan *plan, struct node *node, struct sl_error *err);

static int plan_children(struct plan *plan, struct node *dir, struct sl_error *err)
{
	struct node *const *children;
	size_t n;
	int rc = tree_children(plan->target.tree, dir, &children, &n, err);

	for (size_t i = 0; rc == 0 && i < n; i++)
		rc = plan_node(plan, children[i], err);
	return rc;
}

static int plan_node(struct plan *plan, struct node *node, struct sl_error *err)
{
	char path[4096];

	if (node->kind == NODE_DIR)
		return plan_children(plan, node, err);
	if (node->kind == NODE_LIVE || (node->kind == NODE_TEXT && node->tensor))
		return 0;
	tree_node_path(node, path, sizeof(path));
	if (plan->as_json)
		return json_file(plan, node, path, err);
	print_file(plan, node, path);
	return is_weights(node) ? plan_tensors(plan, node, err) : 0;
}

static int plan_path(struct plan *plan, struct node *node, struct sl_error *err)
{
	int rc = origins_open(&plan->origins, plan->target.model, err);

	if (rc)
		return rc;
	if (!plan->as_json)
		return plan_node(plan, node, err);
	json_begin(&plan->json, NULL, '{');
	json_begin(&plan->json, "files", '[');
	rc = plan_node(plan, node, err);
	json_end(&plan->json, ']');
	json_end(&plan->json, '}');
	return rc;
}

static void json_layout(struct plan *plan, const char *path, const struct sl_error *why)
{
	json_begin(&plan->json, NULL, '{');
	json_string(&plan->json, "path", path);
	json_bool(&plan->json, "ok", why->errnum == 0);
	if (why->errnum)
		json_string(&plan->json, "why", why->text);
	json_end(&plan->json, '}');
}

/* A refusal's text without the path that it begins with. */
static const char *reason(const char *path, const char *text)
{
	size_t len = strlen(path);

	return strncmp(text, path, len) == 0 && strncmp(text + len, ": ", 2) == 0 ? text + len + 2 : text;
}

/* The usual layouts of one engine: those that the tree shows, and those that the model cannot have. */
static void summarise_engine(struct plan *plan, const struct sl_engine *engine, const struct options *options)
{
	struct sl_layout layouts[N_USUAL_LAYOUTS];
	unsigned n = summary_layouts(options, plan->target.model, engine, layouts);
	char path[SL_LAYOUT_PATH_MAX];

	for (unsigned i = 0; i < n; i++) {
		struct sl_error why = SL_ERROR_INIT;
		int rc = sl_layout_check(plan->target.model, engine, &layouts[i], &why);

		sl_layout_path(&layouts[i], engine, path);
		if (plan->as_json)
			json_layout(plan, path, &why);
		else if (rc)
			printf("%-16s %sno%s: %s\n", path, print_colour(stdout, COLOUR_RED),
			       print_colour(stdout, COLOUR_OFF), reason(path, why.text));
		else
			printf("%-16s %sok%s\n", path, print_colour(stdout, COLOUR_GREEN),
			       print_colour(stdout, COLOUR_OFF));
	}
}

static void print_model(const struct plan *plan)
{
	const struct sl_model *model = plan->target.model;

	printf("%s, %s, %s tensors in %u file%s, %s\n", SL_ESC(target_architecture(&plan->target)),
	       sl_dtypes[model->dtype].name, print_count(model->shards.n_tensors).text, model->shards.n_shards,
	       model->shards.n_shards == 1 ? "" : "s", print_size(model->total_bytes).text);
	target_print_notes(&plan->target, stdout);
	putchar('\n');
}

static void json_model(struct plan *plan)
{
	const struct sl_model *model = plan->target.model;

	json_string(&plan->json, "architecture", target_architecture(&plan->target));
	json_string(&plan->json, "dtype", sl_dtypes[model->dtype].name);
	json_number(&plan->json, "tensors", model->shards.n_tensors);
	json_number(&plan->json, "files", model->shards.n_shards);
	json_number(&plan->json, "bytes", model->total_bytes);
	json_begin(&plan->json, "notes", '[');
	for (const struct sl_note *note = model->notes; note; note = note->next)
		json_string(&plan->json, NULL, note->text);
	json_end(&plan->json, ']');
}

static void summarise(struct plan *plan, const struct options *options)
{
	if (plan->as_json) {
		json_begin(&plan->json, NULL, '{');
		json_model(plan);
		json_begin(&plan->json, "layouts", '[');
	} else {
		print_model(plan);
	}
	for (int i = 0; i < SL_N_ENGINES; i++)
		summarise_engine(plan, &sl_engines[i], options);
	if (plan->as_json) {
		json_end(&plan->json, ']');
		json_end(&plan->json, '}');
	}
}

static int run(struct plan *plan, const struct arguments *arguments, struct sl_error *err)
{
	const char *path = arguments->positional[1];
	struct node *node;
	int rc = target_open(&plan->target, arguments, err);

	if (rc == 0)
		rc = tree_path(plan->target.tree, path ? path : "", &node, err);
	if (rc)
		return rc;
	plan->as_json = arguments->json;
	json_init(&plan->json, stdout, 4);
	if (node != tree_root(plan->target.tree))
		return plan_path(plan, node, err);
	summarise(plan, &arguments->options);
	return 0;
}

int cmd_plan(int argc, char **argv)
{
	const struct argument_rules rules = { .min = 1, .max = 2, .flags = ARGUMENT_JSON };
	struct arguments arguments;
	struct plan plan = { 0 };
	struct sl_error err = SL_ERROR_INIT;
	int rc;

	if (arguments_parse(&arguments, argc, argv, &rules, &err))
		return options_fail(&err);
	rc = run(&plan, &arguments, &err);
	free(plan.by_file);
	origins_close(plan.origins);
	target_close(&plan.target);
	if (rc == 0)
		return EXIT_OK;
	fflush(stdout);
	return command_fail(&err);
}
