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

enum { ENTRY = 160 }; /* about the bytes of a tensor's entry in a header */

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

/* ---- one file ---- */

static int writers_order(const void *a, const void *b)
{
	const struct sl_output *x = *(struct sl_output *const *)a, *y = *(struct sl_output *const *)b;

	if (x->dtype != y->dtype)
		return x->dtype > y->dtype ? -1 : 1;
	return strcmp(x->name, y->name);
}

static void write_entry(struct sl_text *text, const struct sl_output *t, uint64_t off)
{
	sl_text_json_string(text, t->name);
	sl_text_put(text, ":{\"dtype\":\"");
	sl_text_put(text, sl_dtypes[t->dtype].name);
	sl_text_put(text, "\",\"shape\":[");
	for (unsigned d = 0; d < t->n_dims; d++) {
		if (d)
			sl_text_put(text, ",");
		sl_text_u64(text, t->shape[d]);
	}
	sl_text_put(text, "],\"data_offsets\":[");
	sl_text_u64(text, off);
	sl_text_put(text, ",");
	sl_text_u64(text, off + t->len);
	sl_text_put(text, "]}");
}

/* The bytes in front of the data: 8 of length, JSON, padding. The tensors are in the writer's order; their offsets from
 * the start of the file are filled in. */
static unsigned char *make_header(struct sl_plan *plan, struct sl_output *const *tensors, uint32_t n, uint64_t *len)
{
	struct sl_text text = SL_TEXT_INIT;
	uint64_t off = 0;

	sl_text_reserve(&text, (size_t)n * ENTRY);
	sl_text_put(&text, "        {");
	if (plan->engine->metadata)
		plan->engine->metadata(plan, tensors, n, &text);
	for (uint32_t i = 0; i < n; i++) {
		if (i || plan->engine->metadata)
			sl_text_put(&text, ",");
		write_entry(&text, tensors[i], off);
		off += tensors[i]->len;
	}
	sl_text_put(&text, "}");
	while (text.len % 8)
		sl_text_put(&text, " ");
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

struct sl_piece *sl_plan_lay_pieces(const struct sl_plan *plan, struct sl_output *const *tensors, uint32_t n,
				    struct sl_piece *at)
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

/* ---- a source file as it is ---- */

static uint32_t tensors_of_shard(const struct sl_shards *shards, uint32_t shard)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < shards->n_tensors; i++)
		n += shards->tensors[i].shard == shard;
	return n;
}

/* 1 + the source file that has these tensors and no others; 0 when there is none. The engine keeps names and whole tensors. */
static uint32_t same_shard(const struct sl_plan *plan, struct sl_output *const *tensors, uint32_t n)
{
	const struct sl_piece *piece;
	uint32_t shard = 0;

	for (uint32_t i = 0; i < n; i++) {
		if (pieces_of(plan, tensors[i], &piece) != 1 || piece->op != SL_OP_COPY || (i && piece->shard != shard))
			return 0;
		shard = piece->shard;
	}
	return tensors_of_shard(&plan->model->shards, shard) == n ? 1 + shard : 0;
}

static int by_offset(const void *a, const void *b)
{
	const struct sl_output *x = *(struct sl_output *const *)a, *y = *(struct sl_output *const *)b;

	return (x->off > y->off) - (x->off < y->off);
}

/* The header of that shard, and each tensor where it is there. */
static void copy_header(const struct sl_plan *plan, uint32_t shard, struct sl_output **tensors, uint32_t n,
			struct sl_piece *header)
{
	const struct sl_piece *piece;

	for (uint32_t i = 0; i < n; i++) {
		pieces_of(plan, tensors[i], &piece);
		tensors[i]->off = piece->src;
	}
	qsort(tensors, n, sizeof(*tensors), by_offset);
	uint64_t len = plan->model->shards.shards[shard].data_off;
	*header = (struct sl_piece){
		.len = len, .run = len, .stride = len, .count = 1, .shard = shard, .op = SL_OP_COPY
	};
}

/* ---- files ---- */

static int write_header(struct sl_plan *plan, struct sl_output **tensors, uint32_t n, struct sl_piece *header)
{
	uint64_t len = 0;

	qsort(tensors, n, sizeof(*tensors), writers_order);
	unsigned char *bytes = make_header(plan, tensors, n, &len);
	if (!bytes)
		return out_of_memory(plan);
	*header = (struct sl_piece){ .len = len, .data = bytes, .op = SL_OP_DATA };
	return 0;
}

static int lay_file(struct sl_plan *plan, uint32_t f, uint32_t n_files, struct sl_output **tensors, uint32_t n,
		    struct sl_piece **at)
{
	struct sl_file *file = &plan->view->files[f];
	struct sl_piece *first = *at;
	int ret = 0;

	file->identical = plan->engine->source_files ? same_shard(plan, tensors, n) : 0;
	if (file->identical)
		copy_header(plan, file->identical - 1, tensors, n, first);
	else
		ret = write_header(plan, tensors, n, first);
	file->name = plan->engine->file_name(plan, f, n_files);
	if (ret || !file->name)
		return ret ? ret : out_of_memory(plan);
	*at = sl_plan_lay_pieces(plan, tensors, n, first + 1);
	file->pieces = first;
	file->n_pieces = (uint32_t)(*at - first);
	file->size = tensors[n - 1]->off + tensors[n - 1]->len;
	file->model = plan->model;
	file->section = tensors[0]->section;
	return 0;
}

int sl_plan_keep_tensors(struct sl_plan *plan)
{
	struct sl_view *view = plan->view;

	if (!sl_arena_adopt(&view->arena, plan->tensors, plan->n_tensors * sizeof(*plan->tensors)))
		return out_of_memory(plan);
	view->tensors = plan->tensors;
	view->n_tensors = plan->n_tensors;
	return 0;
}

void sl_plan_release(struct sl_plan *plan)
{
	if (plan->tensors != plan->view->tensors)
		free(plan->tensors);
	free(plan->pieces);
	free(plan->first_piece);
	free(plan->columns);
}

static int lay(struct sl_plan *plan)
{
	struct sl_view *view = plan->view;
	uint32_t n_files = assign_files(plan);
	struct sl_output **sorted = calloc(plan->n_tensors + 1u, sizeof(*sorted));
	struct sl_piece *at = sl_arena_array(&view->arena, (size_t)plan->n_pieces + n_files, sizeof(*at));
	int ret = sorted && at ? 0 : out_of_memory(plan);

	for (uint32_t f = 0; !ret && f < n_files; f++)
		ret = sl_plan_file(plan) ? 0 : -ENOMEM;
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
	view->n_weights = n_files;
	return ret ? ret : sl_plan_keep_tensors(plan);
}

const struct sl_container sl_safetensors = { "safetensors", lay };

/* ---- any file ---- */

struct sl_file *sl_plan_file(struct sl_plan *plan)
{
	struct sl_view *view = plan->view;

	if (view->n_files == plan->room_files) {
		uint32_t room = plan->room_files ? plan->room_files * 2 : 16;
		struct sl_file *grown = sl_arena_array(&view->arena, room, sizeof(*grown));
		if (!grown) {
			out_of_memory(plan);
			return NULL;
		}
		if (view->n_files)
			memcpy(grown, view->files, view->n_files * sizeof(*grown));
		view->files = grown;
		plan->room_files = room;
	}
	return &view->files[view->n_files++];
}

int sl_plan_text_file(struct sl_plan *plan, const char *name, const char *text, size_t len)
{
	struct sl_piece *piece = sl_arena_alloc(&plan->view->arena, sizeof(*piece));
	struct sl_file *file = sl_plan_file(plan);

	if (!piece || !file)
		return out_of_memory(plan);
	*piece = (struct sl_piece){ .len = len, .data = (const unsigned char *)text, .op = SL_OP_DATA };
	*file = (struct sl_file){
		.name = name, .size = len, .model = plan->model, .pieces = piece, .n_pieces = len ? 1 : 0
	};
	return 0;
}
