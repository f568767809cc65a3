/*
 * cmd_list.c - rankfs --list: what works and what is known and refused, from the tables that decide it. The text is
 * Markdown, so that a support matrix can be pasted from it.
 */
#include "fs/arguments.h"
#include "fs/command.h"
#include "fs/print.h"
#include "slicer/arch.h"
#include "slicer/scheme.h"

#include <string.h>

/* "A, B, C", cut where it does not fit. */
static const char *join(const char *const *names, char *buf, size_t size)
{
	size_t used = 0;

	buf[0] = '\0';
	for (; *names && used < size; names++)
		used += (size_t)snprintf(buf + used, size - used, "%s%s", used ? ", " : "", *names);
	return buf;
}

static void fill_families(struct table *table)
{
	char names[1024];

	for (const struct sl_arch *const *at = sl_archs; *at; at++) {
		table_cell(table, "%s", (*at)->family);
		table_cell(table, "%s", join((*at)->architectures, names, sizeof(names)));
		table_cell(table, "%s", (*at)->format == SL_FORMAT_MISTRAL ? "mistral" : "hf");
	}
}

static void fill_refused(struct table *table)
{
	for (unsigned i = 0; i < sl_n_refused_archs; i++) {
		table_cell(table, "%s", sl_refused_archs[i].architecture);
		table_cell(table, "%s", sl_refused_archs[i].why);
	}
}

static void fill_engines(struct table *table)
{
	for (int i = 0; i < SL_N_ENGINES; i++) {
		table_cell(table, "%s/", sl_engines[i].name);
		table_cell(table, "%s", sl_engines[i].title);
		table_cell(table, "%s", sl_engines[i].version);
		table_cell(table, "%s", sl_engines[i].holds ? sl_engines[i].holds : "all");
	}
}

static void fill_schemes(struct table *table)
{
	for (const struct sl_scheme *const *scheme = sl_schemes; *scheme; scheme++) {
		table_cell(table, "%s", (*scheme)->method);
		table_cell(table, "%s", (*scheme)->title);
		table_cell(table, "%s", (*scheme)->refused ? (*scheme)->refused : "works");
	}
}

static void fill_dtypes(struct table *table)
{
	for (int i = 0; i < SL_N_DTYPES; i++) {
		table_cell(table, "%s", sl_dtypes[i].name);
		table_cell(table, "%u", sl_dtypes[i].bits);
		table_cell(table, "%s", sl_dtypes[i].numpy ? sl_dtypes[i].numpy : "raw words");
	}
}

enum { MAX_COLUMNS = 4 };

/* To add a list: its function above and a row here. */
static const struct list {
	const char *key, *title;
	const char *heads[MAX_COLUMNS];
	size_t n_columns;
	void (*fill)(struct table *table);
} lists[] = {
	{ "families", "Families", { "Family", "Architectures", "Naming" }, 3, fill_families },
	{ "refused", "Known and refused", { "Architecture", "Why" }, 2, fill_refused },
	{ "engines", "Engines", { "Directory", "For", "Names of", "Models" }, 4, fill_engines },
	{ "schemes", "Quantisation", { "Method", "What it is", "Status" }, 3, fill_schemes },
	{ "dtypes", "Dtypes", { "Dtype", ">Bits", ".npy" }, 3, fill_dtypes },
};

enum { N_LISTS = sizeof(lists) / sizeof(lists[0]) };

static int print_lists(struct sl_error *err)
{
	struct table table;
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < N_LISTS; i++) {
		table_init(&table, lists[i].heads, lists[i].n_columns);
		lists[i].fill(&table);
		printf("%s### %s\n\n", i ? "\n" : "", lists[i].title);
		rc = table_print(&table, stdout, TABLE_MARKDOWN, err);
		table_release(&table);
	}
	return rc;
}

/* The same tables as arrays of objects, whose keys are the columns' heads. */
static void json_list(struct json_writer *json, const struct list *list)
{
	struct table table;

	table_init(&table, list->heads, list->n_columns);
	list->fill(&table);
	json_begin(json, list->key, '[');
	for (size_t i = 0; i < table.n_cells; i++) {
		const char *head = list->heads[i % list->n_columns];

		if (i % list->n_columns == 0)
			json_begin(json, NULL, '{');
		json_string(json, head + (*head == '>'), table.cells[i]);
		if ((i + 1) % list->n_columns == 0)
			json_end(json, '}');
	}
	json_end(json, ']');
	table_release(&table);
}

static void json_lists(void)
{
	struct json_writer json;

	json_init(&json, stdout, 2);
	json_begin(&json, NULL, '{');
	for (size_t i = 0; i < N_LISTS; i++)
		json_list(&json, &lists[i]);
	json_end(&json, '}');
}

int cmd_list(int argc, char **argv)
{
	const struct argument_rules rules = { .flags = ARGUMENT_JSON };
	struct arguments arguments;
	struct sl_error err = SL_ERROR_INIT;

	if (arguments_parse(&arguments, argc, argv, &rules, &err))
		return options_fail(&err);
	if (arguments.json)
		json_lists();
	else if (print_lists(&err))
		return command_fail(&err);
	return EXIT_OK;
}
