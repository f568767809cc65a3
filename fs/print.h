/*
 * print.h - what the commands print: sizes for people, aligned tables, JSON, colour.
 *
 * Everything goes to a stdio stream and none of it fails singly: a write error stays in the stream (ferror), where
 * main() looks for it once, at the end. Text from a checkpoint is escaped before it reaches a terminal.
 */
#ifndef FS_PRINT_H
#define FS_PRINT_H

#include "slicer/error.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* One figure as text, in a struct so that a call can stand among the arguments of a printf. */
struct figure {
	char text[32];
};

struct figure print_size(uint64_t bytes); /* "512 B", "1.50 KiB", "14.9 GiB": three digits, powers of 1024 */
struct figure print_count(uint64_t n);	  /* "8,030,261,248" */

/* Text of a checkpoint or a directory, escaped as sl_escape() does, whole. */
void print_escaped(FILE *out, const char *text);

/* The escape sequence when `out` is a terminal and NO_COLOR is unset or empty, else "". */
enum colour { COLOUR_OFF, COLOUR_BOLD, COLOUR_RED, COLOUR_GREEN, COLOUR_YELLOW, N_COLOURS };
const char *print_colour(FILE *out, enum colour colour);

/*
 * A table: its head, then cells from left to right and row by row. A lack of memory is remembered and told by
 * table_print(), so that filling one needs no checks.
 */
enum table_style { TABLE_PLAIN, TABLE_MARKDOWN };

struct table {
	const char *const *heads; /* of each column; '>' in front aligns it right */
	size_t n_columns;
	char **cells; /* n_columns a row, the head not among them */
	size_t n_cells, cap;
	bool out_of_memory;
	enum table_style style; /* while it is printed */
};

void table_init(struct table *table, const char *const *heads, size_t n_columns);
void table_release(struct table *table);
void table_cell(struct table *table, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* 0 or -ENOMEM. An unfinished last row is filled up with empty cells. */
int table_print(struct table *table, FILE *out, enum table_style style, struct sl_error *err) SL_MUST_CHECK;

/*
 * JSON, written as it goes: json_begin() and json_end() nest; `key` is NULL for the elements of an array and for the
 * document itself. Containers down to `unfolded` levels have a line for each member, deeper ones are on one line.
 * Strings that are not UTF-8 (file names) have U+FFFD for each byte that is not.
 */
struct json_writer {
	FILE *out;
	unsigned unfolded;
	unsigned depth;
	bool empty; /* nothing yet in the innermost container */
};

void json_init(struct json_writer *json, FILE *out, unsigned unfolded);
void json_begin(struct json_writer *json, const char *key, char bracket); /* '{' or '[' */
void json_end(struct json_writer *json, char bracket);			  /* '}' or ']' */
void json_string(struct json_writer *json, const char *key, const char *value);
void json_number(struct json_writer *json, const char *key, uint64_t value);
void json_bool(struct json_writer *json, const char *key, bool value);

#endif
