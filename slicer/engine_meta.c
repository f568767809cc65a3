/*
 * engine_meta.c - what Meta's own code for Llama reads: consolidated.{rank}.pth and params.json (meta-llama/llama, llama3,
 * llama-models: models/llama3/model.py, generation.py).
 *
 *      layers.0.attention.wq.weight  =  model.layers.0.self_attn.q_proj.weight, rows divided, halves of a head to pairs
 *      layers.0.feed_forward.w2.weight = model.layers.0.mlp.down_proj.weight, columns divided
 *
 * Llama 1 and 2 divide the columns of the embedding, Llama 3 its rows. The file's form is container_pth.c's.
 */
#include "slicer/plan.h"
#include "slicer/text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum cut { WHOLE, ROWS, PAIRED_ROWS, COLUMNS, EMBEDDING };

/* clang-format off */
/* To add a tensor: what Meta calls it, what is stored, and how it is cut. */
struct named {
	const char *held, *stored;
	enum cut cut;
};

static const struct named before[] = {
	{ "tok_embeddings.weight", "model.embed_tokens.weight", EMBEDDING },
};

static const struct named in_layer[] = {
	{ "attention.wq.weight",    "self_attn.q_proj.weight", PAIRED_ROWS },
	{ "attention.wk.weight",    "self_attn.k_proj.weight", PAIRED_ROWS },
	{ "attention.wv.weight",    "self_attn.v_proj.weight", ROWS },
	{ "attention.wo.weight",    "self_attn.o_proj.weight", COLUMNS },
	{ "feed_forward.w1.weight", "mlp.gate_proj.weight", ROWS },
	{ "feed_forward.w2.weight", "mlp.down_proj.weight", COLUMNS },
	{ "feed_forward.w3.weight", "mlp.up_proj.weight", ROWS },
	{ "attention_norm.weight",  "input_layernorm.weight", WHOLE },
	{ "ffn_norm.weight",        "post_attention_layernorm.weight", WHOLE },
};

static const struct named behind[] = {
	{ "norm.weight", "model.norm.weight", WHOLE },
};

/* A tied head is stored once more. */
static const struct named head = { "output.weight", "lm_head.weight", ROWS };
static const struct named tied_head = { "output.weight", "model.embed_tokens.weight", ROWS };
/* clang-format on */

/* One walk over the tensors: to check, without a plan, or to add. */
struct walk {
	const struct sl_model *model;
	const struct sl_layout *layout;
	struct sl_plan *plan;
	unsigned rank;
	struct sl_error *err;
};

/* It says which Llama it is; 0 when config.json does not say it. */
static double rope_theta(const struct sl_config *config)
{
	return sl_config_rope_theta(config, 0);
}

static int axis_of(const struct walk *walk, enum cut cut)
{
	switch (cut) {
	case WHOLE:
		return -1;
	case ROWS:
	case PAIRED_ROWS:
		return 0;
	case COLUMNS:
		return 1;
	case EMBEDDING:
		return rope_theta(&walk->model->config) == 500000 ? 0 : 1;
	}
	return -1;
}

static int add_pairs(struct sl_plan *plan, const char *name, const struct sl_tensor *tensor, const struct sl_cut *cut)
{
	uint64_t shape[2] = { cut->n, tensor->shape[1] };

	int ret = sl_plan_tensor(plan, name, tensor->dtype);
	if (!ret)
		ret = sl_plan_pairs(plan, tensor, cut->first, cut->n);
	return ret ? ret : sl_plan_shape(plan, shape, 2);
}

static int visit(const struct walk *walk, const char *held_prefix, const char *stored_prefix, const struct named *row)
{
	char name[SL_MODULE_NAME_MAX];
	struct sl_cut cut;

	snprintf(name, sizeof(name), "%s%s", stored_prefix, row->stored);
	const struct sl_tensor *tensor = sl_shards_find(&walk->model->shards, name);
	if (!tensor || !sl_dtype_is_plain(tensor->dtype))
		return sl_fail(walk->err, EINVAL,
			       "Meta's code wants '%s' in BF16, F16 or F32, and the checkpoint has none such", name);
	int ret = sl_cut_evenly(&cut, tensor, axis_of(walk, row->cut), walk->layout, walk->rank, walk->err);
	if (ret || !walk->plan)
		return ret;
	snprintf(name, sizeof(name), "%s%s", held_prefix, row->held);
	return row->cut == PAIRED_ROWS ? add_pairs(walk->plan, name, tensor, &cut)
				       : sl_plan_stored(walk->plan, name, tensor, &cut);
}

static int visit_rows(const struct walk *walk, const char *held_prefix, const char *stored_prefix,
		      const struct named *rows, size_t n)
{
	int ret = 0;

	for (size_t i = 0; i < n && !ret; i++)
		ret = visit(walk, held_prefix, stored_prefix, &rows[i]);
	return ret;
}

static int visit_all(const struct walk *walk)
{
	const struct sl_model *model = walk->model;
	char held[64], stored[64];
	int ret = visit_rows(walk, "", "", before, SL_COUNT(before));

	for (uint64_t l = 0; l < model->config.dims[SL_TEXT].layers && !ret; l++) {
		snprintf(held, sizeof(held), "layers.%llu.", (unsigned long long)l);
		snprintf(stored, sizeof(stored), "model.layers.%llu.", (unsigned long long)l);
		ret = visit_rows(walk, held, stored, in_layer, SL_COUNT(in_layer));
	}
	if (!ret)
		ret = visit_rows(walk, "", "", behind, SL_COUNT(behind));
	return ret ? ret : visit(walk, "", "", model->head_stored ? &head : &tied_head);
}

int sl_meta_check(const struct sl_model *model, const struct sl_engine *engine, const struct sl_layout *layout,
		  struct sl_error *err)
{
	const char *architecture = model->config.architecture;
	const struct sl_dims *d = &model->config.dims[SL_TEXT];
	uint64_t n = SL_COUNT(before) + d->layers * SL_COUNT(in_layer) + SL_COUNT(behind) + model->head_stored;

	(void)engine;
	if (!architecture || strcmp(architecture, "LlamaForCausalLM") != 0)
		return sl_fail(err, EINVAL, "Meta's code runs LlamaForCausalLM, not %s",
			       SL_ESC(architecture ? architecture : model->arch->family));
	if (model->shards.n_tensors - model->n_ignored != n)
		return sl_fail(
			err, EINVAL,
			"Meta's code has no biases and no quantisation: it knows %llu tensors, the checkpoint has %llu",
			(unsigned long long)n, (unsigned long long)(model->shards.n_tensors - model->n_ignored));
	if (d->kv_heads % layout->tp || d->heads % layout->tp)
		return sl_fail(err, EINVAL, "%llu attention heads with %llu kv heads do not divide by %u ranks",
			       (unsigned long long)d->heads, (unsigned long long)d->kv_heads, layout->tp);
	if (!d->hidden || d->head_dim * d->heads != d->hidden || d->head_dim % 2)
		return sl_fail(
			err, EINVAL,
			"Meta's code has heads of hidden / heads = %llu / %llu elements, an even number, not %llu",
			(unsigned long long)d->hidden, (unsigned long long)d->heads, (unsigned long long)d->head_dim);
	if (!sl_config_rope_is(&model->config, "default") && !sl_config_rope_is(&model->config, "llama3"))
		return sl_fail(
			err, EINVAL,
			"Meta's code scales rotary embeddings as Llama 3.1 does (rope_type llama3) or not at all");
	return visit_all(&(struct walk){ .model = model, .layout = layout, .err = err });
}

int sl_meta_plan(struct sl_plan *plan)
{
	return visit_all(&(struct walk){ plan->model, &plan->view->layout, plan, plan->rank, plan->err });
}

char *sl_meta_name(const struct sl_plan *plan, uint32_t i, uint32_t n)
{
	(void)i, (void)n;
	return sl_arena_printf(&plan->view->arena, "consolidated.%02u.pth", plan->rank);
}

/* ---- params.json ---- */

/* Meta's code computes the size of the feed-forward layers: 8/3 of the hidden size, times a factor, rounded up to a multiple.
 * A factor that ends half a multiple below the size gives it, whatever is rounded on the way. */
static void write_feed_forward(struct sl_text *text, const struct sl_dims *d)
{
	uint64_t base = 8 * d->hidden / 3, multiple = d->inter & -d->inter;

	while (multiple > 4096)
		multiple /= 2;
	double size = multiple > 1 ? (double)d->inter - (double)multiple / 2 : (double)d->inter + 0.25;
	sl_text_printf(text, ", \"multiple_of\": %llu, \"ffn_dim_multiplier\": %.9f", (unsigned long long)multiple,
		       size / (double)base);
}

int sl_meta_beside(struct sl_plan *plan)
{
	const struct sl_config *config = &plan->model->config;
	const struct sl_dims *d = &config->dims[SL_TEXT];
	uint32_t eps = sl_config_find(config, SL_TEXT, "rms_norm_eps");
	const struct sl_json_token *number = &config->json.tokens[eps];
	double theta = rope_theta(config);
	struct sl_text text = SL_TEXT_INIT;
	char *copy = NULL;

	sl_text_printf(
		&text,
		"{\"dim\": %llu, \"n_layers\": %llu, \"n_heads\": %llu, \"n_kv_heads\": %llu, \"vocab_size\": %llu",
		(unsigned long long)d->hidden, (unsigned long long)d->layers, (unsigned long long)d->heads,
		(unsigned long long)d->kv_heads, (unsigned long long)d->vocab);
	write_feed_forward(&text, d);
	if (eps && number->type == SL_JSON_NUMBER)
		sl_text_printf(&text, ", \"norm_eps\": %.*s", (int)(number->end - number->start),
			       config->text + number->start);
	if (theta != 0 && theta != 10000) /* which the code of Llama 1 and 2 has no field for */
		sl_text_printf(&text, ", \"rope_theta\": %.1f", theta);
	if (sl_config_rope_is(config, "llama3"))
		sl_text_printf(&text, ", \"use_scaled_rope\": true");
	sl_text_printf(&text, "}\n");
	if (!text.failed)
		copy = sl_arena_strndup(&plan->view->arena, text.bytes, text.len);
	int ret = copy ? sl_plan_text_file(plan, "params.json", copy, text.len)
		       : sl_fail(plan->err, ENOMEM, "out of memory");
	sl_text_release(&text);
	return ret;
}
