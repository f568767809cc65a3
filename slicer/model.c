/*
 * model.c - opening a checkpoint: its files, its configuration, its architecture, then every tensor bound.
 */
#include "slicer/model.h"

#include "slicer/arch.h"
#include "slicer/bind.h"
#include "slicer/scheme.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(SL_STACKS_MAX <= 32, "an architecture has few stacks");

/* Sizes that nothing works without. */
static int check_dims(const struct sl_config *config, struct sl_error *err)
{
	const struct sl_dims *d = &config->dims[SL_TEXT];
	const char *absent = !d->layers	  ? "num_hidden_layers"
			     : !d->hidden ? "hidden_size"
			     : !d->heads  ? "num_attention_heads"
			     : !d->vocab  ? "vocab_size"
					  : NULL;

	return absent ? sl_fail(err, EINVAL, "config.json: %s is absent", absent) : 0;
}

static int understand(struct sl_model *model, struct sl_error *err)
{
	struct sl_config *config = &model->config;

	int ret = sl_arch_find(&model->arch, config, model->shards.format, err);
	if (!ret)
		ret = sl_quant_find(&model->quant, config, model->shards.dirfd, err);
	for (int part = 0; !ret && part < SL_N_PARTS; part++)
		ret = sl_config_dims(config, (enum sl_part)part, model->arch->defaults[part], err);
	if (!ret && model->arch->prepare)
		ret = model->arch->prepare(config, err);
	return ret ? ret : check_dims(config, err);
}

/* ---- the head ---- */

static bool is_tied(const struct sl_config *config, const struct sl_arch *arch)
{
	return sl_config_bool(config, SL_TEXT, "tie_word_embeddings", arch->flags & SL_TIED_BY_DEFAULT);
}

/* The configuration may say it twice; the text model's own word counts. */
static void note_tie_conflict(struct sl_model *model)
{
	const struct sl_json *json = &model->config.json;
	uint32_t section = model->config.sections[SL_TEXT];
	uint32_t outer = sl_json_member(json, 0, "tie_word_embeddings");
	uint32_t inner = section ? sl_json_member(json, section, "tie_word_embeddings") : 0;

	if (outer && inner && json->tokens[outer].type != json->tokens[inner].type)
		sl_note(&model->notes, &model->arena,
			"config.json: tie_word_embeddings is %s in the text model's section and %s at "
			"the top level: the first counts",
			json->tokens[inner].type == SL_JSON_TRUE ? "true" : "false",
			json->tokens[outer].type == SL_JSON_TRUE ? "true" : "false");
}

/* The module of the row with that flag, or NULL. */
static struct sl_bound *flagged(const struct sl_model *model, unsigned flag)
{
	const struct sl_arch *arch = model->arch;

	for (unsigned s = 0; s < arch->n_stacks; s++) {
		for (unsigned r = 0; r < arch->stacks[s].n_weights; r++) {
			if (arch->stacks[s].weights[r].flags & flag)
				return &model->bound[s].modules[model->bound[s].row_start[r]];
		}
	}
	return NULL;
}

/* An engine that has a head in any case gets the embedding a second time where config.json ties the two (vLLM would leave the
 * head as its memory was). */
static void share_embedding(struct sl_model *model, const struct sl_bound *embed, struct sl_bound *head)
{
	*head = *embed;
	sl_note(&model->notes, &model->arena,
		"config.json ties the head to the embedding, but vLLM has a head of its own for %s: it is the embedding "
		"again",
		model->config.architecture);
}

/* Do the first bytes of two tensors of the same size differ? A sample: equality is not claimed from it. */
static int begin_differently(const struct sl_model *model, const struct sl_tensor *a, const struct sl_tensor *b,
			     struct sl_error *err)
{
	unsigned char x[4096], y[4096];
	size_t n = a->len < sizeof(x) ? a->len : sizeof(x);

	if (a->len != b->len || a->dtype != b->dtype)
		return 1;
	int ret = sl_shard_read(&model->shards.shards[a->shard], x, a->off, n, err);
	if (!ret)
		ret = sl_shard_read(&model->shards.shards[b->shard], y, b->off, n, err);
	return ret ? ret : memcmp(x, y, n) != 0;
}

static int settle_head(struct sl_model *model, struct sl_error *err)
{
	struct sl_bound *embedding = flagged(model, SL_IS_EMBED), *own = flagged(model, SL_IS_HEAD);
	const struct sl_tensor *embed = sl_bound_tensor(model, embedding, 0);
	const struct sl_tensor *head = own ? sl_bound_tensor(model, own, 0) : NULL;

	model->head_stored = head != NULL;
	note_tie_conflict(model);
	if ((model->arch->flags & SL_NO_HEAD) && !model->tied)
		return sl_fail(err, EINVAL, "config.json: tie_word_embeddings is false, but %s has no head of its own",
			       model->config.architecture);
	if (own && !head && model->tied && (model->arch->flags & SL_OWN_HEAD))
		share_embedding(model, embedding, own);
	if (!head || !model->tied)
		return 0;
	int differ = begin_differently(model, embed, head, err);
	if (differ < 0)
		return differ;
	if (differ)
		sl_note(&model->notes, &model->arena,
			"config.json ties the head to the embedding, yet '%s' is stored and differs from it",
			SL_ESC(head->name));
	return 0;
}

/* ---- dtype ---- */

/* What most of the dtypes in the headers can become without loss (vLLM: common_broadcastable_dtype). */
static enum sl_dtype common_dtype(const struct sl_model *model)
{
	const uint32_t *seen = model->first_of;

	return seen[SL_F64] ? SL_F64 : seen[SL_F32] ? SL_F32 : seen[SL_BF16] ? SL_BF16 : seen[SL_F16] ? SL_F16 : SL_F32;
}

/* The dtype that --dtype auto gives: as configured, but F32 and what the family cannot compute in become BF16, or F16 for
 * embedding models (vLLM: config/model.py, _resolve_auto_dtype). */
static int settle_dtype(struct sl_model *model, struct sl_error *err)
{
	int dtype = sl_config_dtype(&model->config, err);

	if (err->errnum)
		return -err->errnum;
	if (dtype < 0)
		dtype = common_dtype(model);
	if (dtype == SL_F16 && (model->arch->flags & SL_NO_F16))
		dtype = SL_BF16;
	if (dtype != SL_F16 && dtype != SL_BF16)
		dtype = model->arch->flags & SL_ENCODER ? SL_F16 : SL_BF16;
	model->dtype = (enum sl_dtype)dtype;
	return 0;
}

static void append_notes(struct sl_note **to, struct sl_note *notes)
{
	while (*to)
		to = &(*to)->next;
	*to = notes;
}

static void count_tensors(struct sl_model *model)
{
	for (uint32_t i = model->shards.n_tensors; i-- > 0;) {
		model->total_bytes += model->shards.tensors[i].len;
		model->first_of[model->shards.tensors[i].dtype] = i + 1;
	}
}

/* Everything after the files are open. */
static int settle(struct sl_model *model, struct sl_error *err)
{
	int ret = sl_config_open(&model->config, model->shards.dirfd, &model->arena, err);

	if (ret)
		return ret;
	count_tensors(model);
	ret = understand(model, err);
	if (!ret) {
		model->tied = is_tied(&model->config, model->arch);
		ret = sl_bind(model, err);
	}
	if (!ret)
		ret = settle_head(model, err);
	if (!ret)
		ret = settle_dtype(model, err);
	if (ret)
		sl_config_close(&model->config);
	append_notes(&model->notes, model->shards.notes);
	return ret;
}

int sl_model_open(struct sl_model **out, const char *dir, const struct sl_model_options *options, struct sl_error *err)
{
	struct sl_error local = SL_ERROR_INIT;
	struct sl_model *model = calloc(1, sizeof(*model));

	*out = NULL;
	if (!err)
		err = &local;
	if (!model)
		return sl_fail(err, ENOMEM, "out of memory");
	sl_arena_init(&model->arena);
	model->gpu = options ? options->gpu : 0;
	int ret = sl_shards_open_cached(&model->shards, dir, options ? options->format : SL_FORMAT_AUTO,
					options ? options->cache : NULL, &model->arena, err);
	if (!ret) {
		ret = settle(model, err);
		if (ret)
			sl_shards_close(&model->shards);
	}
	if (ret) {
		sl_arena_release(&model->arena);
		free(model);
		return ret;
	}
	*out = model;
	return 0;
}

void sl_model_close(struct sl_model *model)
{
	if (!model)
		return;
	sl_config_close(&model->config);
	sl_shards_close(&model->shards);
	sl_arena_release(&model->arena);
	free(model);
}
