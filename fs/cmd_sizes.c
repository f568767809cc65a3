/*
 * cmd_sizes.c - rankfs sizes SOURCE: bytes per rank for each layout. Which tp fits my GPUs?
 */
#include "fs/account.h"
#include "fs/arguments.h"
#include "fs/command.h"
#include "fs/print.h"
#include "fs/usual.h"

#include <errno.h>
#include <stdio.h>

/* What a layout takes, over its ranks. */
struct sizes {
	uint64_t largest, total, padding, n_files;
};

static int add_rank(struct sizes *sizes, const struct sl_model *model, const struct sl_engine *engine,
		    const struct sl_layout *layout, unsigned rank, const struct sl_view_options *options,
		    struct sl_error *err)
{
	struct sl_view *view;
	int rc = sl_view_open(&view, model, engine, layout, 0, rank, options, err);

	if (rc)
		return rc;
	sizes->largest = view->bytes > sizes->largest ? view->bytes : sizes->largest;
	sizes->total += view->bytes;
	sizes->n_files += view->n_weights;
	for (uint32_t i = 0; i < view->n_tensors; i++)
		sizes->padding += account_padding(&view->tensors[i]);
	sl_view_close(view);
	return 0;
}

static int measure(struct sizes *sizes, const struct sl_model *model, const struct sl_engine *engine,
		   const struct sl_layout *layout, const struct sl_view_options *options, struct sl_error *err)
{
	int rc = sl_layout_check(model, engine, layout, err);

	*sizes = (struct sizes){ 0 };
	for (unsigned rank = 0; rc == 0 && rank < layout->tp; rank++)
		rc = add_rank(sizes, model, engine, layout, rank, options, err);
	return rc;
}

/* Where the rows go: a table with the refusals below it, or JSON. */
struct report {
	struct table table;
	struct json_writer json;
	bool as_json;
	struct sl_error refused[SL_N_ENGINES][N_USUAL_LAYOUTS];
};

static void add_row(struct report *report, const char *path, const struct sizes *sizes)
{
	table_cell(&report->table, "%s", path);
	table_cell(&report->table, "%s", print_size(sizes->largest).text);
	table_cell(&report->table, "%s", print_size(sizes->total).text);
	table_cell(&report->table, "%s", print_size(sizes->padding).text);
	table_cell(&report->table, "%s", print_count(sizes->n_files).text);
}

static void add_json(struct report *report, const char *path, const struct sizes *sizes, const struct sl_error *why)
{
	json_begin(&report->json, NULL, '{');
	json_string(&report->json, "path", path);
	json_bool(&report->json, "ok", why->errnum == 0);
	if (why->errnum) {
		json_string(&report->json, "why", why->text);
	} else {
		json_number(&report->json, "bytes_per_rank", sizes->largest);
		json_number(&report->json, "bytes_total", sizes->total);
		json_number(&report->json, "padding_bytes", sizes->padding);
		json_number(&report->json, "files", sizes->n_files);
	}
	json_end(&report->json, '}');
}

/* A layout that the model cannot have is a row of its own kind; anything else that goes wrong ends it. */
static int measure_all(struct report *report, const struct sl_model *model, const struct options *options,
		       struct sl_error *err)
{
	const struct sl_view_options for_view = options_for_view(options);
	struct sl_layout layouts[N_USUAL_LAYOUTS];
	char path[SL_LAYOUT_PATH_MAX];

	for (int e = 0; e < SL_N_ENGINES; e++) {
		unsigned n = summary_layouts(options, model, &sl_engines[e], layouts);

		for (unsigned i = 0; i < n; i++) {
			struct sl_error *why = &report->refused[e][i];
			struct sizes sizes;
			int rc = measure(&sizes, model, &sl_engines[e], &layouts[i], &for_view, why);

			if (rc && rc != -EINVAL)
				return sl_fail(err, -rc, "%s", why->text);
			sl_layout_path(&layouts[i], &sl_engines[e], path);
			if (report->as_json)
				add_json(report, path, &sizes, why);
			else if (rc == 0)
				add_row(report, path, &sizes);
		}
	}
	return 0;
}

static void print_refused(const struct report *report)
{
	for (int e = 0; e < SL_N_ENGINES; e++) {
		for (unsigned i = 0; i < N_USUAL_LAYOUTS; i++) {
			if (report->refused[e][i].errnum)
				printf("%s\n", report->refused[e][i].text);
		}
	}
}

static int report_sizes(struct report *report, const struct target *target, const struct options *options,
			struct sl_error *err)
{
	static const char *const heads[] = { "LAYOUT", ">PER RANK", ">ALL RANKS", ">PADDING", ">FILES" };
	int rc;

	table_init(&report->table, heads, sizeof(heads) / sizeof(heads[0]));
	json_init(&report->json, stdout, 2);
	if (report->as_json) {
		json_begin(&report->json, NULL, '{');
		json_number(&report->json, "source_bytes", target->model->total_bytes);
		json_begin(&report->json, "layouts", '[');
	}
	rc = measure_all(report, target->model, options, err);
	if (report->as_json) {
		json_end(&report->json, ']');
		json_end(&report->json, '}');
	} else if (rc == 0) {
		rc = table_print(&report->table, stdout, TABLE_PLAIN, err);
		print_refused(report);
	}
	table_release(&report->table);
	return rc;
}

int cmd_sizes(int argc, char **argv)
{
	const struct argument_rules rules = { .min = 1, .max = 1, .flags = ARGUMENT_JSON };
	struct arguments arguments;
	struct target target = { 0 };
	struct report report = { .as_json = false };
	struct sl_error err = SL_ERROR_INIT;
	int rc;

	if (arguments_parse(&arguments, argc, argv, &rules, &err))
		return options_fail(&err);
	report.as_json = arguments.json;
	rc = target_open(&target, &arguments, &err);
	if (rc == 0)
		rc = report_sizes(&report, &target, &arguments.options, &err);
	target_close(&target);
	return rc ? command_fail(&err) : EXIT_OK;
}
