/*
 * cmd_check.c - rankfs check SOURCE [PATH]: is every tensor accounted for, every scale a number?
 *
 * Opening a checkpoint checks it: shards, headers, names, shapes. With a PATH, such as vllm/tp8, every rank of that
 * layout is planned too, the pieces of every file are checked against its size and the shards', and what became of
 * each tensor of the checkpoint is told (account.h).
 */
#include "fs/account.h"
#include "fs/arguments.h"
#include "fs/command.h"
#include "fs/print.h"
#include "slicer/scales.h"
#include "slicer/series.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct check {
	struct target target;
	bool as_json;
	struct json_writer json;
	const struct sl_engine *engine;
	struct sl_layout layout;
	struct sl_view_options options;
	struct account *account;
};

/* A line about the model, in either form. */
static void tell(struct check *check, const char *key, const char *value)
{
	if (check->as_json)
		json_string(&check->json, key, value);
	else
		printf("%-13s %s\n", key, SL_ESC(value));
}

static void tell_number(struct check *check, const char *key, uint64_t value)
{
	if (check->as_json)
		json_number(&check->json, key, value);
	else
		printf("%-13s %s\n", key, print_count(value).text);
}

static void tell_model(struct check *check)
{
	const struct sl_model *model = check->target.model;

	tell(check, "architecture", target_architecture(&check->target));
	tell(check, "dtype", sl_dtypes[model->dtype].name);
	tell(check, "format", model->shards.format == SL_FORMAT_MISTRAL ? "mistral" : "hf");
	tell_number(check, "files", model->shards.n_shards);
	tell_number(check, "tensors", model->shards.n_tensors);
	tell_number(check, "ignored", model->n_ignored);
	tell_number(check, "bytes", model->total_bytes);
	if (!check->as_json) {
		target_print_notes(&check->target, stdout);
		return;
	}
	json_begin(&check->json, "notes", '[');
	for (const struct sl_note *note = model->notes; note; note = note->next)
		json_string(&check->json, NULL, note->text);
	json_end(&check->json, ']');
}

/* The engine in whose directory a path lies, and what comes behind that directory. The longest name wins: "hf/layers" lies
 * inside "hf". */
static const struct sl_engine *find_engine(const char **path)
{
	const struct sl_engine *found = NULL;
	size_t len = strlen("tensors"), longest = 0;

	if (strncmp(*path, "tensors", len) == 0 && strspn(*path + len, "/")) {
		*path += len;
		return &sl_engines[SL_VLLM];
	}
	for (int i = 0; i < SL_N_ENGINES; i++) {
		len = strlen(sl_engines[i].name);
		if (len < longest || strncmp(*path, sl_engines[i].name, len) != 0 ||
		    ((*path)[len] && (*path)[len] != '/'))
			continue;
		found = &sl_engines[i];
		longest = len;
	}
	*path += longest;
	return found;
}

/* "vllm/tp8", "airllm", and whatever is below it. */
static int parse_path(struct check *check, const char *path, struct sl_error *err)
{
	char name[64], layout[SL_LAYOUT_NAME_MAX] = "";
	const char *rest = path += strspn(path, "/");

	check->engine = find_engine(&rest);
	if (!check->engine) {
		snprintf(name, sizeof(name), "%.*s", (int)strcspn(path, "/"), path);
		return sl_fail(err, ENOENT, "'%s' is no engine: `rankfs --list` shows those there are", SL_ESC(name));
	}
	check->layout = SL_LAYOUT_WHOLE;
	if (!check->engine->ranks)
		return 0;
	if (sscanf(rest, "/%63[^/]", layout) != 1)
		return sl_fail(err, EINVAL, "'%s' names no layout: '%s/%s8' is one", SL_ESC(path), check->engine->name,
			       check->engine->ranks);
	if (sl_layout_parse(&check->layout, check->engine, layout))
		return sl_fail(err, ENOENT, "'%s' is no layout: %s8, %s are some", SL_ESC(layout), check->engine->ranks,
			       check->engine->layouts);
	return 0;
}

/* Do the source bytes of a piece lie within its shard's data, run by run? */
static bool is_run_in_shard(const struct sl_model *model, const struct sl_file *file, const struct sl_piece *p)
{
	uint64_t span;

	return p->shard < model->shards.n_shards && p->count > 0 &&
	       !__builtin_mul_overflow(p->stride, (uint64_t)p->count - 1, &span) &&
	       !__builtin_add_overflow(span, p->run, &span) && !__builtin_add_overflow(span, p->src, &span) &&
	       p->src >= (file->identical ? 0 : model->shards.shards[p->shard].data_off) &&
	       span <= model->shards.shards[p->shard].size;
}

static bool is_in_shard(const struct sl_model *model, const struct sl_file *file, const struct sl_piece *piece)
{
	const struct sl_parts parts = sl_piece_parts(piece);

	for (uint32_t i = 0; i < parts.n; i++) {
		if (sl_piece_reads(&parts.list[i]) && !is_run_in_shard(model, file, &parts.list[i]))
			return false;
	}
	return true;
}

static int check_piece(const struct check *check, const struct sl_file *file, uint32_t i, uint64_t *end,
		       struct sl_error *err)
{
	const struct sl_model *model = check->target.model;
	struct sl_made_piece made;

	for (uint64_t j = 0; j < sl_piece_count(&file->pieces[i]); j++) {
		const struct sl_piece *p = sl_piece_at(model, &file->pieces[i], j, &made);

		if (p->off != *end || p->len == 0)
			return sl_fail(err, EINVAL, "%s: piece %u begins at %" PRIu64 ", not at %" PRIu64,
				       SL_ESC(file->name), i, p->off, *end);
		if (!is_in_shard(model, file, p))
			return sl_fail(err, EINVAL, "%s: piece %u reads outside its shard", SL_ESC(file->name), i);
		*end += p->len;
	}
	return 0;
}

static int check_file(const struct check *check, const struct sl_file *file, struct sl_error *err)
{
	uint64_t end = 0;

	for (uint32_t i = 0; i < file->n_pieces; i++) {
		int rc = check_piece(check, file, i, &end, err);

		if (rc)
			return rc;
	}
	if (end != file->size)
		return sl_fail(err, EINVAL, "%s: its pieces have %" PRIu64 " bytes, it has %" PRIu64,
			       SL_ESC(file->name), end, file->size);
	return 0;
}

static void tell_rank(struct check *check, const struct sl_view *view)
{
	if (check->as_json) {
		json_begin(&check->json, NULL, '{');
		json_number(&check->json, "stage", view->stage);
		json_number(&check->json, "rank", view->rank);
		json_number(&check->json, "tensors", view->n_tensors);
		json_number(&check->json, "bytes", view->bytes);
		json_number(&check->json, "files", view->n_weights);
		json_end(&check->json, '}');
		return;
	}
	fputs("rank ", stdout);
	if (view->layout.pp > 1)
		printf("%u of stage %u", view->rank, view->stage);
	else
		printf("%u", view->rank);
	printf(": %s tensors in %u files, %s bytes\n", print_count(view->n_tensors).text, view->n_weights,
	       print_count(view->bytes).text);
}

static int check_rank(struct check *check, unsigned stage, unsigned rank, struct sl_error *err)
{
	struct sl_view *view;
	int rc = sl_view_open(&view, check->target.model, check->engine, &check->layout, stage, rank, &check->options,
			      err);

	if (rc)
		return rc;
	for (uint32_t i = 0; rc == 0 && i < view->n_files; i++)
		rc = check_file(check, &view->files[i], err);
	if (rc == 0) {
		account_add(check->account, view);
		tell_rank(check, view);
	}
	sl_view_close(view);
	return rc;
}

static int check_ranks(struct check *check, struct sl_error *err)
{
	int rc = sl_layout_check(check->target.model, check->engine, &check->layout, err);

	for (unsigned i = 0; rc == 0 && i < check->layout.pp * check->layout.tp; i++)
		rc = check_rank(check, i / check->layout.tp, i % check->layout.tp, err);
	return rc;
}

static int check_layout(struct check *check, const char *path, struct sl_error *err)
{
	int rc = parse_path(check, path, err);

	if (rc == 0)
		rc = account_open(&check->account, check->target.model, check->engine, err);
	if (rc)
		return rc;
	if (check->as_json)
		json_begin(&check->json, "ranks", '[');
	rc = check_ranks(check, err);
	if (check->as_json)
		json_end(&check->json, ']');
	if (rc == 0 && check->as_json)
		account_write(check->account, &check->json);
	else if (rc == 0)
		account_print(check->account);
	return rc;
}

static int run(struct check *check, const struct arguments *arguments, struct sl_error *err)
{
	int rc = target_open(&check->target, arguments, err);

	check->as_json = arguments->json;
	check->options = options_for_view(&arguments->options);
	json_init(&check->json, stdout, 2);
	if (check->as_json)
		json_begin(&check->json, NULL, '{');
	if (rc == 0)
		tell_model(check);
	if (rc == 0)
		rc = sl_check_scales(check->target.model, err);
	if (rc == 0 && arguments->positional[1])
		rc = check_layout(check, arguments->positional[1], err);
	if (check->as_json) {
		json_bool(&check->json, "ok", rc == 0);
		if (rc)
			json_string(&check->json, "error", err->text);
		json_end(&check->json, '}');
	} else if (rc == 0) {
		printf("%sok%s\n", print_colour(stdout, COLOUR_GREEN), print_colour(stdout, COLOUR_OFF));
	}
	return rc;
}

int cmd_check(int argc, char **argv)
{
	const struct argument_rules rules = { .min = 1, .max = 2, .flags = ARGUMENT_JSON };
	struct arguments arguments;
	struct check check = { .as_json = false };
	struct sl_error err = SL_ERROR_INIT;
	int rc;

	if (arguments_parse(&arguments, argc, argv, &rules, &err))
		return options_fail(&err);
	rc = run(&check, &arguments, &err);
	account_close(check.account);
	target_close(&check.target);
	fflush(stdout);
	return rc ? command_fail(&err) : EXIT_OK;
}
