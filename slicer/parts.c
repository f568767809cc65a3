/*
 * parts.c - weight files: which tensors go into which, their headers as safetensors' own writer makes them (tensors sorted by
 * dtype, the widest first, then by name; compact JSON, padded with spaces to a multiple of 8), and the pieces behind.
 */
#include "slicer/plan.h"
#include "slicer/text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int out_of_memory(struct sl_plan *plan)
{
	return sl_fail(plan->err, ENOMEM, "out of memory");
}

/* ---- which file a tensor goes into ---- */

/* A new file begins with each section, and where the next tensor would exceed the size of a part. Returns how many. */
static uint32_t assign_files(struct sl_plan *plan)
{
	uint32_t n_files = 0, section = 0;
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < plan->n_tensors; i++) {
		struct sl_output *t = &plan->tensors[i];
		if (n_files == 0 || t->section != section || (bytes > 0 && bytes + t->len > plan->part_bytes)) {
			n_files++;
			section = t->section;
			bytes = 0;
		}
		bytes += t->len;
		t->file = n_files - 1;
		plan->view->bytes += t->len;
	}
	return n_files;
}

/* The names that vLLM's loader looks for (sharded_state_loader.py), and Hugging Face's. */
static char *file_name(const struct sl_plan *plan, uint32_t i, uint32_t n)
{
	struct sl_view *view = plan->view;

	if (view->engine->rank_dirs)
		return sl_arena_printf(&view->arena, "model-%05u-of-%05u.safetensors", i + 1, n);
	if (view->layout.pp > 1)
		return sl_arena_printf(&view->arena, "model-pp-%u-tp-%u-part-%u.safetensors", view->stage, view->rank, i);
	return sl_arena_printf(&view->arena, "model-rank-%u-part-%u.safetensors", view->rank, i);
}

/* ---- one file ---- */

static int writers_order(const void *a, const void *b)
{
	const struct sl_output *x = *(struct sl_output *const *)a, *y = *(struct sl_output *const *)b;

	if (x->dtype != y->dtype)
		return x->dtype > y->dtype ? -1 : 1;
	return strcmp(x->name, y->name);
}

static void add(struct sl_text *text, const char *string)
{
	sl_text_add(text, string, strlen(string));
}

static void write_entry(struct sl_text *text, const struct sl_output *t, uint64_t off)
{
	sl_text_json_string(text, t->name);
	add(text, ":{\"dtype\":\"");
	add(text, sl_dtypes[t->dtype].name);
	add(text, "\",\"shape\":[");
	for (unsigned d = 0; d < t->n_dims; d++) {
		if (d)
			add(text, ",");
		sl_text_u64(text, t->shape[d]);
	}
	add(text, "],\"data_offsets\":[");
	sl_text_u64(text, off);
	add(text, ",");
	sl_text_u64(text, off + t->len);
	add(text, "]}");
}

/* The bytes in front of the data: 8 of length, JSON, padding. The tensors are in the writer's order; their offsets from
 * the start of the file are filled in. */
static unsigned char *make_header(struct sl_plan *plan, struct sl_output *const *tensors, uint32_t n, uint64_t *len)
{
	struct sl_text text = SL_TEXT_INIT;
	uint64_t off = 0;

	add(&text, "        {");
	if (plan->engine->rank_dirs)
		sl_text_printf(&text, "\"__metadata__\":{\"format\":\"pt\"}%s", n ? "," : "");
	for (uint32_t i = 0; i < n; i++) {
		if (i)
			add(&text, ",");
		write_entry(&text, tensors[i], off);
		off += tensors[i]->len;
	}
	add(&text, "}");
	while (text.len % 8)
		add(&text, " ");
	unsigned char *header = NULL;
	if (!text.failed) {
		for (unsigned i = 0; i < 8; i++)
			text.bytes[i] = (char)((text.len - 8) >> (8 * i));
		*len = text.len;
		header = (unsigned char *)sl_arena_strndup(&plan->view->arena, text.bytes, text.len);
	}
	sl_text_release(&text);
	for (uint32_t i = 0; header && i < n; i++)
		tensors[i]->off = i ? tensors[i - 1]->off + tensors[i - 1]->len : *len;
	return header;
}

static uint32_t pieces_of(const struct sl_plan *plan, const struct sl_output *tensor, const struct sl_piece **first)
{
	uint32_t i = (uint32_t)(tensor - plan->tensors);
	uint32_t end = i + 1 < plan->n_tensors ? plan->first_piece[i + 1] : plan->n_pieces;

	*first = &plan->pieces[plan->first_piece[i]];
	return end - plan->first_piece[i];
}

/* Copy the pieces of a file's tensors behind its header's piece. Returns where the next file's pieces go. */
static struct sl_piece *lay_pieces(const struct sl_plan *plan, struct sl_output *const *tensors, uint32_t n, struct sl_piece *at)
{
	for (uint32_t i = 0; i < n; i++) {
		const struct sl_piece *from;
		tensors[i]->n_pieces = pieces_of(plan, tensors[i], &from);
		tensors[i]->pieces = at;
		for (uint32_t p = 0; p < tensors[i]->n_pieces; p++, at++) {
			*at = from[p];
			at->off += tensors[i]->off;
		}
	}
	return at;
}

static int lay_file(struct sl_plan *plan, uint32_t f, uint32_t n_files, struct sl_output **tensors, uint32_t n,
		    struct sl_piece **at)
{
	struct sl_file *file = &plan->view->files[f];
	struct sl_piece *first = *at;
	uint64_t header_len = 0;

	qsort(tensors, n, sizeof(*tensors), writers_order);
	unsigned char *header = make_header(plan, tensors, n, &header_len);
	file->name = file_name(plan, f, n_files);
	if (!header || !file->name)
		return out_of_memory(plan);
	*first = (struct sl_piece){ .len = header_len, .data = header, .op = SL_OP_DATA };
	*at = lay_pieces(plan, tensors, n, first + 1);
	file->pieces = first;
	file->n_pieces = (uint32_t)(*at - first);
	file->size = tensors[n - 1]->off + tensors[n - 1]->len;
	file->model = plan->model;
	file->section = tensors[0]->section;
	return 0;
}

/* The tensors live in the arena from now on: files refer to them. */
static int keep_tensors(struct sl_plan *plan)
{
	struct sl_view *view = plan->view;

	view->tensors = sl_arena_array(&view->arena, plan->n_tensors, sizeof(*view->tensors));
	if (!view->tensors)
		return out_of_memory(plan);
	memcpy(view->tensors, plan->tensors, plan->n_tensors * sizeof(*view->tensors));
	view->n_tensors = plan->n_tensors;
	return 0;
}

int sl_plan_parts(struct sl_plan *plan, unsigned extra)
{
	struct sl_view *view = plan->view;
	uint32_t n_files = assign_files(plan);
	struct sl_output **sorted = calloc(plan->n_tensors + 1u, sizeof(*sorted));
	struct sl_piece *at = sl_arena_array(&view->arena, (size_t)plan->n_pieces + n_files, sizeof(*at));
	int ret = 0;

	view->files = sl_arena_array(&view->arena, (size_t)n_files + extra, sizeof(*view->files));
	if (!sorted || !at || !view->files)
		ret = out_of_memory(plan);
	for (uint32_t i = 0; !ret && i < plan->n_tensors; i++)
		sorted[i] = &plan->tensors[i];
	for (uint32_t i = 0, f = 0; !ret && f < n_files; f++) {
		uint32_t n = 0;
		while (i + n < plan->n_tensors && plan->tensors[i + n].file == f)
			n++;
		ret = lay_file(plan, f, n_files, sorted + i, n, &at);
		i += n;
	}
	free(sorted);
	view->n_files = view->n_weights = n_files;
	return ret ? ret : keep_tensors(plan);
}

int sl_plan_text_file(struct sl_plan *plan, struct sl_file *file, const char *name, const char *text, size_t len)
{
	struct sl_piece *piece = sl_arena_alloc(&plan->view->arena, sizeof(*piece));

	if (!piece)
		return out_of_memory(plan);
	*piece = (struct sl_piece){ .len = len, .data = (const unsigned char *)text, .op = SL_OP_DATA };
	*file = (struct sl_file){ .name = name, .size = len, .model = plan->model, .pieces = piece, .n_pieces = 1 };
	return 0;
}
