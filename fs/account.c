/*
 * account.c - adds up, over the pieces of all ranks, what they read of each tensor.
 */
#include "fs/account.h"

#include "slicer/arch.h"
#include "slicer/bind.h"
#include "slicer/series.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

enum { NAMES_SHOWN = 10 };

/* Of one stored tensor. */
struct use {
	uint64_t most;	    /* read by one rank */
	uint64_t this_rank; /* read by the rank that is being added */
	uint32_t ranks;	    /* that read it */
	bool converted;
};

enum skip { BY_ENGINE, DRAFT, EMPTY, BY_ALL };

static const char *const skips[] = {
	[BY_ENGINE] = "no tensor of its own in", /* and the engine */
	[DRAFT] = "a next-n (MTP) layer's",
	[EMPTY] = "empty",
	[BY_ALL] = "a buffer or an all-zero bias, which no engine loads",
};

struct account {
	const struct sl_model *model;
	const struct sl_engine *engine;
	struct origins *origins;
	struct use *uses;   /* of each tensor of the model */
	unsigned char *why; /* enum skip of each, should no rank read it */
	uint64_t made, padding;
};

/* What the figures of all uses add up to. */
struct sums {
	uint64_t held, whole, split, replicated, converted, skipped;
};

/* ---- why a tensor may be skipped ---- */

static void mark_bound(struct account *account)
{
	const struct sl_model *model = account->model;

	for (unsigned s = 0; s < model->arch->n_stacks; s++) {
		const struct sl_binding *binding = &model->bound[s];
		uint64_t n = binding->per_layer * sl_stack_layers(model, &model->arch->stacks[s]);

		for (uint64_t m = 0; m < n; m++) {
			const struct sl_bound *bound = &binding->modules[m];

			for (unsigned i = 0; bound->storage && i < bound->storage->n_components; i++) {
				if (bound->tensors[i])
					account->why[bound->tensors[i] - 1] = BY_ENGINE;
			}
			if (bound->bias)
				account->why[bound->bias - 1] = BY_ENGINE;
		}
	}
}

static void find_reasons(struct account *account)
{
	const struct sl_model *model = account->model;

	for (uint32_t i = 0; i < model->shards.n_tensors; i++)
		account->why[i] = BY_ALL;
	mark_bound(account);
	for (uint32_t i = 0; i < model->n_drafts; i++)
		account->why[model->drafts[i]] = DRAFT;
	for (uint32_t i = 0; i < model->shards.n_tensors; i++) {
		if (model->shards.tensors[i].len == 0)
			account->why[i] = EMPTY;
	}
}

int account_open(struct account **out, const struct sl_model *model, const struct sl_engine *engine,
		 struct sl_error *err)
{
	struct account *account = *out = calloc(1, sizeof(*account));
	size_t n = model->shards.n_tensors + 1u;

	if (!account)
		return sl_fail(err, ENOMEM, "no memory for the checkpoint's tensors");
	account->model = model;
	account->engine = engine;
	account->uses = calloc(n, sizeof(*account->uses));
	account->why = calloc(n, sizeof(*account->why));
	if (!account->uses || !account->why)
		return sl_fail(err, ENOMEM, "no memory for the checkpoint's tensors");
	find_reasons(account);
	return origins_open(&account->origins, model, err);
}

void account_close(struct account *account)
{
	if (!account)
		return;
	origins_close(account->origins);
	free(account->uses);
	free(account->why);
	free(account);
}

/* ---- one rank ---- */

static bool is_made_anew(const struct sl_piece *p)
{
	return p->op == SL_OP_SCALE || p->op == SL_OP_REGROUP || p->op == SL_OP_REGROUPED ||
	       ((p->op == SL_OP_CONVERT || p->op == SL_OP_TRANSPOSE) && p->from != p->to);
}

/* One source of a piece; returns false when it has none. */
static bool add_source(struct account *account, const struct sl_piece *p, bool converted)
{
	const struct sl_tensor *t = sl_piece_reads(p) ? origins_find(account->origins, p->shard, p->src) : NULL;
	struct use *use;

	if (!t)
		return false;
	use = &account->uses[t - account->model->shards.tensors];
	use->this_rank += p->run * p->count;
	use->converted |= converted || is_made_anew(p);
	return true;
}

static uint64_t zeros_of(const struct sl_piece *pieces, uint32_t n)
{
	uint64_t zeros = 0;

	for (uint32_t i = 0; i < n; i++) {
		struct sl_parts parts = sl_piece_parts(&pieces[i]);

		for (uint32_t j = 0; j < parts.n; j++)
			zeros += parts.list[j].op == SL_OP_ZERO ? parts.list[j].len : 0;
	}
	return zeros;
}

uint64_t account_padding(const struct sl_output *output)
{
	uint64_t zeros = 0;

	for (uint32_t i = 0; i < output->n_pieces; i++) {
		const struct sl_piece *p = &output->pieces[i];

		zeros += p->op == SL_OP_SERIES ? p->series->n * zeros_of(p->series->pieces, p->series->n_pieces)
					       : zeros_of(p, 1);
	}
	return zeros < output->len ? zeros : 0;
}

/* Returns whether it has any source. */
static bool add_piece(struct account *account, const struct sl_piece *piece)
{
	struct sl_parts parts = sl_piece_parts(piece);
	bool stored = false;

	for (uint32_t i = 0; i < parts.n; i++)
		stored |= add_source(account, &parts.list[i], is_made_anew(piece));
	return stored;
}

static void add_output(struct account *account, const struct sl_output *output)
{
	struct sl_made_piece made;
	bool stored = false;

	for (uint32_t i = 0; i < output->n_pieces; i++) {
		for (uint64_t j = 0; j < sl_piece_count(&output->pieces[i]); j++)
			stored |= add_piece(account, sl_piece_at(account->model, &output->pieces[i], j, &made));
	}
	account->made += !stored;
	account->padding += account_padding(output);
}

void account_add(struct account *account, const struct sl_view *view)
{
	for (uint32_t i = 0; i < view->n_tensors; i++)
		add_output(account, &view->tensors[i]);
	for (uint32_t i = 0; i < account->model->shards.n_tensors; i++) {
		struct use *use = &account->uses[i];

		use->most = use->this_rank > use->most ? use->this_rank : use->most;
		use->ranks += use->this_rank > 0;
		use->this_rank = 0;
	}
}

/* ---- telling it ---- */

static struct sums add_up(const struct account *account)
{
	struct sums sums = { 0 };

	for (uint32_t i = 0; i < account->model->shards.n_tensors; i++) {
		const struct use *use = &account->uses[i];
		bool all = use->most >= account->model->shards.tensors[i].len;

		sums.held += use->ranks > 0;
		sums.skipped += use->ranks == 0;
		sums.whole += use->ranks == 1 && all;
		sums.split += use->ranks > 0 && !all;
		sums.replicated += use->ranks > 1 && all;
		sums.converted += use->converted;
	}
	return sums;
}

static const char *reason(const struct account *account, uint32_t i, char *buf, size_t size)
{
	if (account->why[i] == BY_ENGINE)
		snprintf(buf, size, "%s %s", skips[BY_ENGINE], account->engine->name);
	else
		snprintf(buf, size, "%s", skips[account->why[i]]);
	return buf;
}

static void print_figure(const char *key, uint64_t n, const char *what)
{
	if (n)
		printf("%-13s %s%s\n", key, print_count(n).text, what);
}

void account_print(const struct account *account)
{
	const struct sl_shards *shards = &account->model->shards;
	struct sums sums = add_up(account);
	uint64_t n = 0;
	char why[128];

	print_figure("held", sums.held,
		     sums.held == shards->n_tensors ? " tensors, all of them" : " of the checkpoint's tensors");
	print_figure("  split", sums.split, " are cut: a rank has a part of each");
	print_figure("  replicated", sums.replicated, " are whole on several ranks");
	print_figure("  whole", sums.whole, " are whole on one rank");
	print_figure("  converted", sums.converted, " of these get another dtype");
	print_figure("made", account->made, " tensors of constants, over all ranks");
	print_figure("padding", account->padding, " bytes of zeros, over all ranks");
	print_figure("skipped", sums.skipped, ":");
	for (uint32_t i = 0; i < shards->n_tensors && n < NAMES_SHOWN; i++) {
		if (account->uses[i].ranks == 0 && ++n)
			printf("  %s (%s)\n", SL_ESC(shards->tensors[i].name), reason(account, i, why, sizeof(why)));
	}
	if (sums.skipped > n)
		printf("  … and %s more\n", print_count(sums.skipped - n).text);
}

void account_write(const struct account *account, struct json_writer *json)
{
	const struct sl_shards *shards = &account->model->shards;
	struct sums sums = add_up(account);
	char why[128];

	json_number(json, "held", sums.held);
	json_number(json, "split", sums.split);
	json_number(json, "replicated", sums.replicated);
	json_number(json, "whole", sums.whole);
	json_number(json, "converted", sums.converted);
	json_number(json, "made", account->made);
	json_number(json, "padding_bytes", account->padding);
	json_begin(json, "skipped", '[');
	for (uint32_t i = 0; i < shards->n_tensors; i++) {
		if (account->uses[i].ranks)
			continue;
		json_begin(json, NULL, '{');
		json_string(json, "name", shards->tensors[i].name);
		json_string(json, "why", reason(account, i, why, sizeof(why)));
		json_end(json, '}');
	}
	json_end(json, ']');
}
