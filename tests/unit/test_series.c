/*
 * test_series.c - what is said once for all experts is what would be said of each: pieces, bytes, and which tensors a module is
 * bound to.
 */
#include "checkpoint.h"
#include "family.h"
#include "linear.h"

#include "slicer/arch.h"
#include "slicer/bind.h"
#include "slicer/series.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(series, .init = checkpoint_setup, .fini = checkpoint_teardown, .timeout = 120);

/* A model of that many experts, in a format of linear.c or plain. */
static struct sl_model *open_experts(const char *family, const char *format, unsigned experts, const char *members)
{
	const struct format *f = format ? format_find(format) : NULL;
	struct family given = *family_find(family);
	char config[1000];

	if (!given.more.A)
		given.sizes = (struct sizes){ 2, 64, 8, 2, 16, 128, 64, given.sizes.P };
	given.more.E = experts;
	given.more.J = given.more.A ? 24 : 128;
	snprintf(config, sizeof(config), "%s%s", f ? f->config : "", members);
	family_build(&given, &given.sizes, "BF16", "bfloat16", false, config);
	if (f)
		linear_quantise(f, "_proj.weight");
	checkpoint_write(2);
	return checkpoint_open();
}

/* ---- pieces ---- */

static void expect_same_piece(const char *name, const struct sl_piece *a, const struct sl_piece *b)
{
	const struct sl_parts x = sl_piece_parts(a), y = sl_piece_parts(b);

	cr_assert(a->off == b->off && a->len == b->len && a->run == b->run && a->stride == b->stride &&
			  a->count == b->count && a->op == b->op && a->from == b->from && a->to == b->to,
		  "%s", name);
	if (sl_piece_reads(a))
		cr_assert(a->src == b->src && a->shard == b->shard, "%s", name);
	if (x.list == a)
		return;
	cr_assert_eq(x.n, y.n);
	for (uint32_t i = 0; i < x.n; i++)
		expect_same_piece(name, &x.list[i], &y.list[i]);
}

static unsigned count_series(const struct sl_output *output)
{
	unsigned n = 0;

	for (uint32_t i = 0; i < output->n_pieces; i++)
		n += output->pieces[i].op == SL_OP_SERIES;
	return n;
}

/* The same pieces, spread out at once or one by one, as of a view that has been planned expert by expert. */
static unsigned compare_output(const struct sl_model *model, const struct sl_output *once, const struct sl_output *each)
{
	struct sl_made_piece made;
	struct sl_arena arena;
	uint32_t n, at = 0;

	sl_arena_init(&arena);
	const struct sl_piece *spread = sl_pieces_spread(model, once->pieces, once->n_pieces, &arena, &n);
	cr_assert_str_eq(once->name, each->name);
	cr_assert_eq(count_series(each), 0);
	cr_assert_eq(n, each->n_pieces, "%s: %u pieces, %u", once->name, n, each->n_pieces);
	for (uint32_t i = 0; i < n; i++)
		expect_same_piece(once->name, &spread[i], &each->pieces[i]);
	for (uint32_t i = 0; i < once->n_pieces; i++) {
		for (uint64_t j = 0; j < sl_piece_count(&once->pieces[i]); j++)
			expect_same_piece(once->name, sl_piece_at(model, &once->pieces[i], j, &made),
					  &each->pieces[at++]);
	}
	sl_arena_release(&arena);
	return count_series(once);
}

/* As if no two experts were known to be stored alike. */
static void forget_alike(struct sl_model *model)
{
	for (unsigned s = 0; s < model->arch->n_stacks; s++) {
		const struct sl_stack *stack = &model->arch->stacks[s];
		memset(model->bound[s].alike, 0, sl_stack_layers(model, stack) * stack->n_weights);
	}
}

/* Returns how many series there are. */
static unsigned compare_views(struct sl_model *model, struct sl_model *doubting, const char *path, unsigned rank,
			      uint64_t *state)
{
	struct sl_view *once = checkpoint_view(model, path, 0, rank);
	struct sl_view *each = checkpoint_view(doubting, path, 0, rank);
	unsigned n = 0;

	cr_assert_eq(once->n_tensors, each->n_tensors);
	for (uint32_t i = 0; i < once->n_tensors; i++) {
		n += compare_output(model, &once->tensors[i], &each->tensors[i]);
		unsigned char *a = checkpoint_read(once, &once->tensors[i]);
		unsigned char *b = checkpoint_read(each, &each->tensors[i]);
		cr_assert_eq(memcmp(a, b, once->tensors[i].len), 0, "%s", once->tensors[i].name);
		free(a);
		free(b);
	}
	checkpoint_read_randomly(once, 20, state);
	sl_view_close(once);
	sl_view_close(each);
	return n;
}

static void compare(const char *family, const char *format, unsigned experts, const char *members,
		    const char *const *paths, unsigned least)
{
	struct sl_model *model = open_experts(family, format, experts, members), *doubting = checkpoint_open();
	uint64_t state = 5;

	forget_alike(doubting);
	for (; *paths; paths++) {
		unsigned n = compare_views(model, doubting, *paths, 0, &state);
		n += compare_views(model, doubting, *paths, 1, &state);
		cr_assert_geq(n, least, "%s, %s: %u series", format ? format : "plain", *paths, n);
	}
	sl_model_close(model);
	sl_model_close(doubting);
	checkpoint_teardown();
	checkpoint_setup();
}

Test(series, is_what_each_expert_would_be)
{
	static const char *const paths[] = { "vllm/tp2", "vllm/tp2-ep", "vllm/tp2-f32", NULL };
	static const char *const quantised[] = { "vllm/tp2", "vllm/tp2-ep", NULL };
	static const char *const dealt[] = { "vllm/tp2-eprr", NULL };
	static const char *const stored[] = { "fp8-block", "fp8-tensor", "w4a16" };

	compare("qwen3-moe", NULL, 6, "", paths, 4);
	compare("mixtral", NULL, 3, "", paths, 4);
	compare("deepseek", NULL, 7, ",\"n_group\":7", dealt, 4);
	for (size_t i = 0; i < sizeof(stored) / sizeof(stored[0]); i++)
		compare("qwen3-moe", stored[i], 4, "", quantised, 4);
}

/* An expert is not like the others: the plan says each. */
Test(series, is_none_where_experts_differ)
{
	struct sl_model *model = open_experts("qwen3-moe", NULL, 3, "");
	struct sl_view *view;

	sl_model_close(model);
	checkpoint_replace("F32", "128 64", "model.layers.1.mlp.experts.1.gate_proj.weight");
	checkpoint_write(2);
	checkpoint_refused("experts.1.gate_proj.weight", "first expert", NULL);
	checkpoint_replace("BF16", "128 64", "model.layers.1.mlp.experts.1.gate_proj.weight");
	checkpoint_write(2);
	model = checkpoint_open();
	forget_alike(model);
	view = checkpoint_view(model, "vllm/tp2", 0, 1);
	for (uint32_t i = 0; i < view->n_tensors; i++)
		cr_assert_eq(count_series(&view->tensors[i]), 0);
	sl_view_close(view);
	sl_model_close(model);
}

Test(series, one_expert_is_none)
{
	struct sl_model *model = open_experts("qwen3-moe", NULL, 4, "");
	struct sl_view *view = checkpoint_view(model, "vllm/tp4-ep", 0, 3);

	for (uint32_t i = 0; i < view->n_tensors; i++)
		cr_assert_eq(count_series(&view->tensors[i]), 0);
	sl_view_close(view);
	sl_model_close(model);
}

/* ---- binding ---- */

/* Experts of one, two and three digits, which in the order of names do not follow one another. */
Test(series, each_expert_is_bound_to_its_own)
{
	static const char *const rows[] = { "gate_proj", "up_proj", "down_proj" };
	struct sl_model *model = open_experts("qwen3-moe", NULL, 123, "");
	unsigned n_seen = 0;

	for (unsigned s = 0; s < model->arch->n_stacks; s++) {
		const struct sl_stack *stack = &model->arch->stacks[s];
		for (unsigned r = 0; r < stack->n_weights; r++) {
			const char *row = NULL;
			for (size_t i = 0; i < 3; i++)
				row = strstr(stack->weights[r].name, "%e") && strstr(stack->weights[r].name, rows[i])
					      ? rows[i]
					      : row;
			for (unsigned e = 0; row && e < 123; e++, n_seen++) {
				char name[200];
				snprintf(name, sizeof(name), "model.layers.1.mlp.experts.%u.%s.weight", e, row);
				cr_assert_str_eq(sl_bound_tensor(model, sl_bound_at(model, s, 1, r, e), 0)->name, name);
				cr_assert(sl_is_alike(model, s, 1, r, stack->n_weights));
			}
		}
	}
	cr_assert_eq(n_seen, 3 * 123);
	sl_model_close(model);
}

/* What only one expert has is found, wherever it comes in the order of names. */
Test(series, a_tensor_of_one_expert)
{
	static const char *const names[] = { "experts.0.a",
					     "experts.10.gate_proj.weigh",
					     "experts.10.gate_proj.weight2",
					     "experts.11.up_proj.bias",
					     "experts.12.z",
					     "experts.13.x" };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		struct sl_model *model = open_experts("qwen3-moe", NULL, 13, "");
		sl_model_close(model);
		checkpoint_add("BF16", "128", "model.layers.1.mlp.%s", names[i]);
		checkpoint_write(2);
		checkpoint_refused("1 tensor is unexpected", names[i], NULL);
		checkpoint_teardown();
		checkpoint_setup();
	}
}

Test(series, a_tensor_that_one_expert_lacks)
{
	static const char *const names[] = { "model.layers.1.mlp.experts.0.up_proj.weight",
					     "model.layers.1.mlp.experts.7.gate_proj.weight",
					     "model.layers.1.mlp.experts.12.down_proj.weight" };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		struct sl_model *model = open_experts("qwen3-moe", NULL, 13, "");
		sl_model_close(model);
		checkpoint_drop(names[i]);
		checkpoint_write(2);
		checkpoint_refused("1 tensor is missing", names[i], NULL);
		checkpoint_teardown();
		checkpoint_setup();
	}
}
