/*
 * print.c - sizes for people, tables, JSON and colour: plain text made from plain values.
 */
#include "fs/print.h"
#include "slicer/utf8.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct figure print_size(uint64_t bytes)
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
	struct figure figure;
	double value = (double)bytes;
	unsigned unit = 0;

	/* 1023.5 would be written as 1024. */
	for (; value >= 1023.5; value /= 1024)
		unit++;
	snprintf(figure.text, sizeof(figure.text), "%.*f %s",
		 unit == 0 || value >= 99.95 ? 0
		 : value >= 9.995	     ? 1
					     : 2,
		 value, units[unit]);
	return figure;
}

struct figure print_count(uint64_t n)
{
	struct figure figure;
	char digits[24];
	int len = snprintf(digits, sizeof(digits), "%llu", (unsigned long long)n);
	size_t used = 0;

	for (int i = 0; i < len; i++) {
		if (i > 0 && (len - i) % 3 == 0)
			figure.text[used++] = ',';
		figure.text[used++] = digits[i];
	}
	figure.text[used] = '\0';
	return figure;
}

/* Character by character, so that no length needs a limit. */
void print_escaped(FILE *out, const char *text)
{
	char escaped[32];
	size_t left = strlen(text), n;

	for (; left > 0; text += n, left -= n) {
		n = sl_utf8_char((const unsigned char *)text, left);
		n = n ? n : 1;
		fputs(sl_escape(escaped, sizeof(escaped), text, n), out);
	}
}

const char *print_colour(FILE *out, enum colour colour)
{
	static const char *const sequences[N_COLOURS] = {
		[COLOUR_OFF] = "\033[0m",    [COLOUR_BOLD] = "\033[1m",	   [COLOUR_RED] = "\033[31m",
		[COLOUR_GREEN] = "\033[32m", [COLOUR_YELLOW] = "\033[33m",
	};
	const char *no_colour = getenv("NO_COLOR");

	if ((no_colour && *no_colour) || !isatty(fileno(out)))
		return "";
	return sequences[colour];
}

void table_init(struct table *table, const char *const *heads, size_t n_columns)
{
	*table = (struct table){ .heads = heads, .n_columns = n_columns };
}

void table_release(struct table *table)
{
	for (size_t i = 0; i < table->n_cells; i++)
		free(table->cells[i]);
	free(table->cells);
	table_init(table, table->heads, table->n_columns);
}

static bool grow(struct table *table)
{
	size_t cap = table->cap ? 2 * table->cap : 64;
	char **cells;

	if (table->n_cells < table->cap)
		return true;
	cells = reallocarray(table->cells, cap, sizeof(*cells));
	if (!cells)
		return false;
	table->cells = cells;
	table->cap = cap;
	return true;
}

void table_cell(struct table *table, const char *fmt, ...)
{
	va_list ap;
	char *text;

	if (table->out_of_memory)
		return;
	va_start(ap, fmt);
	if (vasprintf(&text, fmt, ap) < 0)
		text = NULL;
	va_end(ap);
	if (!text || !grow(table)) {
		free(text);
		table->out_of_memory = true;
		return;
	}
	table->cells[table->n_cells++] = text;
}

/* Characters, for alignment: bytes that do not continue one. In Markdown a '|' takes two. */
static size_t width(const struct table *table, const char *text)
{
	size_t n = 0;

	for (; *text; text++)
		n += ((unsigned char)*text & 0xC0) != 0x80 ? 1u + (*text == '|' && table->style == TABLE_MARKDOWN) : 0;
	return n;
}

static const char *head(const struct table *table, size_t column)
{
	return table->heads[column] + (table->heads[column][0] == '>');
}

static size_t column_width(const struct table *table, size_t column)
{
	size_t widest = width(table, head(table, column)), w;

	for (size_t i = column; i < table->n_cells; i += table->n_columns) {
		w = width(table, table->cells[i]);
		widest = w > widest ? w : widest;
	}
	return widest;
}

/* The last column of plain text is not padded: lines have no trailing blanks. */
static void print_cell(const struct table *table, FILE *out, size_t column, const char *text)
{
	int padding = (int)(column_width(table, column) - width(table, text));
	bool right = table->heads[column][0] == '>', markdown = table->style == TABLE_MARKDOWN;
	bool last = column + 1 == table->n_columns;

	fputs(markdown ? (column == 0 ? "| " : " | ") : (column == 0 ? "" : "  "), out);
	fprintf(out, "%*s", right ? padding : 0, "");
	for (; *text; text++)
		fprintf(out, "%s%c", *text == '|' && markdown ? "\\" : "", *text);
	if (!right && (!last || markdown))
		fprintf(out, "%*s", padding, "");
	if (last)
		fputs(markdown ? " |\n" : "\n", out);
}

static void print_rule(const struct table *table, FILE *out)
{
	for (size_t c = 0; c < table->n_columns; c++) {
		fputs("|-", out);
		for (size_t w = column_width(table, c); w > 0; w--)
			fputc('-', out);
		fputc(table->heads[c][0] == '>' ? ':' : '-', out);
	}
	fputs("|\n", out);
}

int table_print(struct table *table, FILE *out, enum table_style style, struct sl_error *err)
{
	while (table->n_cells % table->n_columns != 0 && !table->out_of_memory)
		table_cell(table, "%s", "");
	if (table->out_of_memory)
		return sl_fail(err, ENOMEM, "no memory for a table");
	table->style = style;
	for (size_t c = 0; c < table->n_columns; c++)
		print_cell(table, out, c, head(table, c));
	if (style == TABLE_MARKDOWN)
		print_rule(table, out);
	for (size_t i = 0; i < table->n_cells; i++)
		print_cell(table, out, i % table->n_columns, table->cells[i]);
	return 0;
}

void json_init(struct json_writer *json, FILE *out, unsigned unfolded)
{
	*json = (struct json_writer){ .out = out, .unfolded = unfolded, .empty = true };
}

static void line_feed(const struct json_writer *json)
{
	if (json->depth <= json->unfolded)
		fprintf(json->out, "\n%*s", (int)(2 * json->depth), "");
}

static void quoted(struct json_writer *json, const char *text)
{
	const unsigned char *at = (const unsigned char *)text;
	size_t left = strlen(text), n;

	fputc('"', json->out);
	for (; left > 0; at += n, left -= n) {
		n = sl_utf8_char(at, left);
		if (n == 0) {
			fputs("\\ufffd", json->out);
			n = 1;
		} else if (*at == '"' || *at == '\\') {
			fprintf(json->out, "\\%c", *at);
		} else if (*at < 0x20 || *at == 0x7F) {
			fprintf(json->out, "\\u%04x", *at);
		} else {
			fwrite(at, 1, n, json->out);
		}
	}
	fputc('"', json->out);
}

/* What stands in front of a member: a comma unless it is the first, its line, its key. */
static void member(struct json_writer *json, const char *key)
{
	if (!json->empty)
		fputs(json->depth > json->unfolded ? ", " : ",", json->out);
	if (json->depth > 0)
		line_feed(json);
	json->empty = false;
	if (key) {
		quoted(json, key);
		fputs(": ", json->out);
	}
}

void json_begin(struct json_writer *json, const char *key, char bracket)
{
	member(json, key);
	fputc(bracket, json->out);
	json->depth++;
	json->empty = true;
}

void json_end(struct json_writer *json, char bracket)
{
	bool folded = json->depth > json->unfolded;

	json->depth--;
	if (!json->empty && !folded)
		line_feed(json);
	fputc(bracket, json->out);
	if (json->depth == 0)
		fputc('\n', json->out);
	json->empty = false;
}

void json_string(struct json_writer *json, const char *key, const char *value)
{
	member(json, key);
	quoted(json, value);
}

void json_number(struct json_writer *json, const char *key, uint64_t value)
{
	member(json, key);
	fprintf(json->out, "%llu", (unsigned long long)value);
}

void json_bool(struct json_writer *json, const char *key, bool value)
{
	member(json, key);
	fputs(value ? "true" : "false", json->out);
}
