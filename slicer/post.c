/*
 * post.c - the table of recipes, and what they are written with.
 */
#include "slicer/post.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define ROW(id, text, arithmetic) { #id, text, arithmetic, sl_post_##id },

static const struct sl_recipe recipes[] = { SL_RECIPES(ROW) };

const struct sl_recipe *sl_recipe_find(const char *name)
{
	for (size_t i = 0; i < sizeof(recipes) / sizeof(recipes[0]); i++) {
		if (strcmp(recipes[i].name, name) == 0)
			return &recipes[i];
	}
	return NULL;
}

static int out_of_memory(const struct sl_post *post)
{
	return sl_fail(post->plan->err, ENOMEM, "out of memory");
}

/* ---- loaded tensors ---- */

const struct sl_loaded *sl_post_find(const struct sl_post *post, const char *name)
{
	for (unsigned i = 0; i < post->n_loaded; i++) {
		if (strcmp(post->loaded[i].name, name) != 0)
			continue;
		if (post->used)
			post->used[i] = true;
		return &post->loaded[i];
	}
	return NULL;
}

int sl_post_need(const struct sl_post *post, const char *name, unsigned n_dims, const struct sl_loaded **loaded)
{
	*loaded = sl_post_find(post, name);
	if (!*loaded)
		return sl_fail(post->plan->err, EINVAL, "%s has no '%s'", SL_ESC(post->prefix), name);
	if ((*loaded)->n_dims != n_dims)
		return sl_fail(post->plan->err, EINVAL, "%s: '%s' has %u dimensions, not %u", SL_ESC(post->prefix),
			       name, (*loaded)->n_dims, n_dims);
	return 0;
}

/* ---- tensors of the plan ---- */

int sl_post_begin(const struct sl_post *post, const char *name, enum sl_dtype dtype)
{
	char full[SL_MODULE_NAME_MAX];

	if ((size_t)snprintf(full, sizeof(full), "%s%s", post->prefix, name) >= sizeof(full))
		return sl_fail(post->plan->err, ENAMETOOLONG, "the name of '%s' is too long", name);
	return sl_plan_tensor(post->plan, full, dtype);
}

int sl_post_shape(const struct sl_post *post, const uint64_t *shape, unsigned n_dims)
{
	return sl_plan_shape(post->plan, shape, n_dims);
}

void sl_post_turned(const struct sl_post *post)
{
	post->plan->tensors[post->plan->n_tensors - 1].turned = true;
}

int sl_post_keep_as(const struct sl_post *post, const struct sl_loaded *loaded, const char *name, enum sl_dtype dtype,
		    const uint64_t *shape, unsigned n_dims)
{
	int ret = sl_post_begin(post, name, dtype);

	for (uint32_t i = 0; i < loaded->n_pieces && !ret; i++)
		ret = sl_plan_piece(post->plan, &loaded->pieces[i]);
	return ret ? ret : sl_post_shape(post, shape, n_dims);
}

int sl_post_keep(const struct sl_post *post, const struct sl_loaded *loaded)
{
	return sl_post_keep_as(post, loaded, loaded->name, loaded->dtype, loaded->shape, loaded->n_dims);
}

/* ---- transforms ---- */

struct sl_transform sl_post_transform(enum sl_transform_id id, uint64_t batch, uint64_t rows, uint64_t row_bytes)
{
	return (struct sl_transform){ .id = id, .args = { .batch = batch, .rows = rows, .row_bytes = row_bytes } };
}

void sl_post_input_stream(struct sl_transform *t, const struct sl_stream *stream, uint64_t off, uint64_t rows,
			  uint64_t row_bytes)
{
	unsigned i = t->n_inputs++;

	t->in[i] = (struct sl_stream){ stream->pieces, stream->n, stream->off + off, rows * row_bytes, row_bytes };
	t->args.in[i].rows = rows;
	t->args.in[i].row_bytes = row_bytes;
}

void sl_post_input(struct sl_transform *t, const struct sl_loaded *loaded, uint64_t off, uint64_t rows,
		   uint64_t row_bytes)
{
	const struct sl_stream stream = { .pieces = loaded->pieces, .n = loaded->n_pieces };

	sl_post_input_stream(t, &stream, off, rows, row_bytes);
}

/* What the inputs read, each piece once: pieces of pieces as well. `parts` NULL: only count. */
static uint32_t list_parts(const struct sl_transform *t, struct sl_piece *parts)
{
	uint32_t n = 0;

	for (unsigned i = 0; i < t->n_inputs; i++) {
		bool again = false;
		for (unsigned j = 0; j < i; j++)
			again |= t->in[j].pieces == t->in[i].pieces;
		for (uint32_t p = 0; p < t->in[i].n && !again; p++) {
			struct sl_parts of = sl_piece_parts(&t->in[i].pieces[p]);
			if (parts)
				memcpy(parts + n, of.list, of.n * sizeof(*parts));
			n += of.n;
		}
	}
	return n;
}

static int add_facts(const struct sl_post *post, struct sl_transform *t)
{
	const struct sl_transform_row *row = sl_transforms[t->id];

	uint64_t len = row->facts_len ? row->facts_len(&t->args) : 0;

	if (len == 0 || t->facts)
		return 0;
	t->facts = sl_arena_alloc(&post->plan->view->arena, sizeof(*t->facts) + len);
	return t->facts ? 0 : out_of_memory(post);
}

int sl_post_share_facts(const struct sl_post *post, struct sl_transform *a, struct sl_transform *b)
{
	int ret = add_facts(post, a);

	b->facts = a->facts;
	return ret;
}

/* A piece that reads the transform, which is copied. */
static int make_piece(const struct sl_post *post, const struct sl_transform *t, struct sl_piece *piece)
{
	struct sl_arena *arena = &post->plan->view->arena;
	struct sl_compound *compound = sl_arena_alloc(arena, sizeof(*compound));
	struct sl_transform *copy = sl_arena_alloc(arena, sizeof(*copy));
	uint32_t n = list_parts(t, NULL);
	struct sl_piece *parts = sl_arena_array(arena, n + 1u, sizeof(*parts));
	int ret = sl_transform_check(t, post->plan->err);

	if (ret)
		return sl_error_prefix(post->plan->err, "%s", SL_ESC(post->prefix));
	if (!compound || !copy || !parts)
		return out_of_memory(post);
	list_parts(t, parts);
	*copy = *t;
	copy->module = post->module;
	copy->args.strict = post->strict;
	*compound = (struct sl_compound){ .n = n, .parts = parts, .transform = copy };
	*piece = (struct sl_piece){
		.op = SL_OP_TRANSFORM, .len = sl_transform_len(&t->args), .run = t->args.row_bytes, .compound = compound
	};
	if (__builtin_mul_overflow(t->args.batch, t->args.rows, &piece->count))
		return sl_fail(post->plan->err, EOVERFLOW, "%s has too many rows", SL_ESC(post->prefix));
	return add_facts(post, copy);
}

int sl_post_add(const struct sl_post *post, const struct sl_transform *t)
{
	struct sl_piece piece;
	int ret = make_piece(post, t, &piece);

	return ret ? ret : sl_plan_piece(post->plan, &piece);
}

int sl_post_make(const struct sl_post *post, const struct sl_transform *t, struct sl_stream *made)
{
	struct sl_piece *piece = sl_arena_alloc(&post->plan->view->arena, sizeof(*piece));

	*made = (struct sl_stream){ .pieces = piece, .n = 1 };
	return piece ? make_piece(post, t, piece) : out_of_memory(post);
}

int sl_post_one(const struct sl_post *post, const char *name, enum sl_dtype dtype, const struct sl_transform *t,
		const uint64_t *shape, unsigned n_dims)
{
	int ret = sl_post_begin(post, name, dtype);

	if (!ret)
		ret = sl_post_add(post, t);
	return ret ? ret : sl_post_shape(post, shape, n_dims);
}
