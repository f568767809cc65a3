/*
 * engine_gguf.c - one GGUF file, as llama.cpp reads it (ggml, docs/gguf.md, version 3; llama.cpp, convert_hf_to_gguf.py):
 *
 *      "GGUF" 3 n n | key-value pairs: sizes, tokenizer | name, axes, type, place of each tensor | tensors, at multiples of 32
 *
 * Matrices keep their dtype, vectors are F32. Llama's queries and keys have the rows of each head in pairs. Axes are named
 * from the innermost outwards.
 */
#include "slicer/gguf.h"
#include "slicer/plan.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VERSION = 3, ALIGNMENT = 32 };

/* clang-format off */
/* To add an architecture: llama.cpp's name for it, whether q and k are stored in halves, which rows beside the common ones. */
static const struct family {
	const char *architecture, *name;
	bool pairs, biases, head_norms;
} families[] = {
	{ "LlamaForCausalLM",   "llama", .pairs = true },
	{ "MistralForCausalLM", "llama", .pairs = true },
	{ "Qwen2ForCausalLM",   "qwen2", .biases = true },
	{ "Qwen3ForCausalLM",   "qwen3", .head_norms = true },
};

/* To add a tensor: its name in a block of llama.cpp's, and below the layer in the checkpoint. */
struct named {
	const char *held, *stored;
};

static const struct named common[] = {
	{ "attn_norm.weight",   "input_layernorm.weight" },
	{ "attn_q.weight",      "self_attn.q_proj.weight" },
	{ "attn_k.weight",      "self_attn.k_proj.weight" },
	{ "attn_v.weight",      "self_attn.v_proj.weight" },
	{ "attn_output.weight", "self_attn.o_proj.weight" },
	{ "ffn_norm.weight",    "post_attention_layernorm.weight" },
	{ "ffn_gate.weight",    "mlp.gate_proj.weight" },
	{ "ffn_up.weight",      "mlp.up_proj.weight" },
	{ "ffn_down.weight",    "mlp.down_proj.weight" },
};

static const struct named biases[] = {
	{ "attn_q.bias", "self_attn.q_proj.bias" },
	{ "attn_k.bias", "self_attn.k_proj.bias" },
	{ "attn_v.bias", "self_attn.v_proj.bias" },
};

static const struct named head_norms[] = {
	{ "attn_q_norm.weight", "self_attn.q_norm.weight" },
	{ "attn_k_norm.weight", "self_attn.k_norm.weight" },
};

static const struct named outside[] = {
	{ "token_embd.weight",  "model.embed_tokens.weight" },
	{ "output_norm.weight", "model.norm.weight" },
};

static const struct named head = { "output.weight", "lm_head.weight" };

/* ggml's number of a dtype, and of a file that has most of its tensors in it. */
static const struct {
	bool known;
	uint8_t tensor, file;
} types[SL_N_DTYPES] = {
	[SL_F32]  = { true, 0, 0 },
	[SL_F16]  = { true, 1, 1 },
	[SL_BF16] = { true, 30, 32 },
};
/* clang-format on */

static const struct family *find_family(const struct sl_model *model)
{
	for (size_t i = 0; i < SL_COUNT(families) && model->config.architecture; i++) {
		if (strcmp(families[i].architecture, model->config.architecture) == 0)
			return &families[i];
	}
	return NULL;
}

/* ---- tensors ---- */

/* Look for a tensor; with a plan, add it. */
static int visit(const struct sl_model *model, struct sl_plan *plan, const char *held_prefix, const char *stored_prefix,
		 const struct named *row, struct sl_error *err)
{
	bool pairs = find_family(model)->pairs &&
		     (strcmp(row->held, "attn_q.weight") == 0 || strcmp(row->held, "attn_k.weight") == 0);
	char name[SL_MODULE_NAME_MAX];

	snprintf(name, sizeof(name), "%s%s", stored_prefix, row->stored);
	const struct sl_tensor *tensor = sl_shards_find(&model->shards, name);
	if (!tensor || !types[tensor->dtype].known)
		return sl_fail(err, EINVAL,
			       "llama.cpp wants '%s' in BF16, F16 or F32, and the checkpoint has none such", name);
	if (!plan)
		return 0;
	snprintf(name, sizeof(name), "%s%s", held_prefix, row->held);
	int ret = sl_plan_tensor(plan, name, tensor->n_dims == 1 ? SL_F32 : (enum sl_dtype)tensor->dtype);
	if (!ret)
		ret = pairs ? sl_plan_pairs(plan, tensor, 0, tensor->shape[0]) : sl_plan_whole(plan, tensor);
	return ret ? ret : sl_plan_shape(plan, tensor->shape, tensor->n_dims);
}

static int visit_rows(const struct sl_model *model, struct sl_plan *plan, uint64_t layer, const struct named *rows,
		      size_t n, struct sl_error *err)
{
	char held[64], stored[64];
	int ret = 0;

	snprintf(held, sizeof(held), "blk.%llu.", (unsigned long long)layer);
	snprintf(stored, sizeof(stored), "model.layers.%llu.", (unsigned long long)layer);
	for (size_t i = 0; i < n && !ret; i++)
		ret = visit(model, plan, held, stored, &rows[i], err);
	return ret;
}

static int visit_all(const struct sl_model *model, struct sl_plan *plan, struct sl_error *err)
{
	const struct family *family = find_family(model);
	int ret = 0;

	for (size_t i = 0; i < SL_COUNT(outside) && !ret; i++)
		ret = visit(model, plan, "", "", &outside[i], err);
	if (!ret && model->head_stored)
		ret = visit(model, plan, "", "", &head, err);
	for (uint64_t l = 0; l < model->config.dims[SL_TEXT].layers && !ret; l++) {
		ret = visit_rows(model, plan, l, common, SL_COUNT(common), err);
		if (!ret && family->biases)
			ret = visit_rows(model, plan, l, biases, SL_COUNT(biases), err);
		if (!ret && family->head_norms)
			ret = visit_rows(model, plan, l, head_norms, SL_COUNT(head_norms), err);
	}
	return ret;
}

/* ---- rotary scaling ---- */

static double rope_theta(const struct sl_config *config)
{
	return sl_config_rope_theta(config, 10000);
}

/* By how much Llama 3.1 slows each pair's rotation (convert_hf_to_gguf.py, generate_extra_tensors): in F32, as there. */
static float rope_factor(const struct sl_config *config, float exponent)
{
	float freq = 1.0f / powf((float)rope_theta(config), exponent),
	      factor = (float)sl_config_rope_number(config, "factor", 8);
	float low = (float)sl_config_rope_number(config, "low_freq_factor", 1),
	      high = (float)sl_config_rope_number(config, "high_freq_factor", 4);
	float context = (float)sl_config_rope_number(config, "original_max_position_embeddings", 8192),
	      wave = (float)(2 * M_PI) / freq;

	if (wave < context / high)
		return 1;
	if (wave > context / low)
		return factor;
	float smooth = (context / wave - low) / (high - low);
	return 1 / ((1 - smooth) / factor + smooth);
}

static int add_rope_factors(struct sl_plan *plan)
{
	uint64_t dim = plan->model->config.dims[SL_TEXT].head_dim, n = dim / 2;
	float *factors = sl_arena_array(&plan->view->arena, n, sizeof(*factors));

	if (!factors)
		return sl_fail(plan->err, ENOMEM, "out of memory");
	for (uint64_t i = 0; i < n; i++)
		factors[i] = rope_factor(&plan->model->config, (float)(2 * i) / (float)dim);
	int ret = sl_plan_tensor(plan, "rope_freqs.weight", SL_F32);
	if (!ret)
		ret = sl_plan_data(plan, factors, n * sizeof(*factors));
	return ret ? ret : sl_plan_shape(plan, &n, 1);
}

/* ---- hooks ---- */

static int check_rope(const struct sl_config *config, struct sl_error *err)
{
	static const char *const known[] = { "default", "llama3", "linear" };

	for (size_t i = 0; i < SL_COUNT(known); i++) {
		if (sl_config_rope_is(config, known[i]))
			return 0;
	}
	return sl_fail(
		err, EINVAL,
		"config.json: its kind of rope_scaling is not written to GGUF here (none, llama3 and linear are)");
}

int sl_gguf_check(const struct sl_model *model, const struct sl_engine *engine, const struct sl_layout *layout,
		  struct sl_error *err)
{
	const struct sl_dims *d = &model->config.dims[SL_TEXT];
	const struct family *family = find_family(model);

	(void)engine, (void)layout;
	if (!family)
		return sl_fail(err, EINVAL, "GGUF is written for Llama, Mistral, Qwen2 and Qwen3, not for %s",
			       SL_ESC(model->config.architecture ? model->config.architecture : model->arch->family));
	uint64_t per_layer = SL_COUNT(common) + (family->biases ? SL_COUNT(biases) : 0) +
			     (family->head_norms ? SL_COUNT(head_norms) : 0);
	uint64_t n = SL_COUNT(outside) + d->layers * per_layer + model->head_stored;
	int ret = visit_all(model, NULL, err);
	if (!ret && model->shards.n_tensors - model->n_ignored != n)
		return sl_fail(err, EINVAL, "llama.cpp has names for %llu tensors of it, the checkpoint has %llu",
			       (unsigned long long)n, (unsigned long long)(model->shards.n_tensors - model->n_ignored));
	if (!ret && (!d->head_dim || d->head_dim % 2 || !d->kv_heads))
		return sl_fail(err, EINVAL, "heads of %llu elements have no halves", (unsigned long long)d->head_dim);
	if (!ret)
		ret = check_rope(&model->config, err);
	return ret ? ret : sl_gguf_check_tokenizer(model, err);
}

int sl_gguf_plan(struct sl_plan *plan)
{
	int ret = visit_all(plan->model, plan, plan->err);

	return ret || !sl_config_rope_is(&plan->model->config, "llama3") ? ret : add_rope_factors(plan);
}

char *sl_gguf_name(const struct sl_plan *plan, uint32_t i, uint32_t n)
{
	(void)i, (void)n;
	return sl_arena_strdup(&plan->view->arena, "model.gguf");
}

/* ---- key-value pairs ---- */

void sl_gguf_put(struct sl_text *text, uint64_t value, unsigned size)
{
	char bytes[8];

	for (unsigned i = 0; i < size; i++)
		bytes[i] = (char)(value >> (8 * i));
	sl_text_add(text, bytes, size);
}

void sl_gguf_put_string(struct sl_text *text, const char *string, size_t len)
{
	sl_gguf_put(text, len, 8);
	sl_text_add(text, string, len);
}

static void begin_pair(struct sl_gguf *gguf, const char *key, enum sl_gguf_type type)
{
	sl_gguf_put_string(&gguf->text, key, strlen(key));
	sl_gguf_put(&gguf->text, type, 4);
	gguf->n++;
}

void sl_gguf_u32(struct sl_gguf *gguf, const char *key, uint64_t value)
{
	begin_pair(gguf, key, SL_GGUF_U32);
	sl_gguf_put(&gguf->text, value, 4);
}

void sl_gguf_f32(struct sl_gguf *gguf, const char *key, float value)
{
	begin_pair(gguf, key, SL_GGUF_F32);
	sl_text_add(&gguf->text, (const char *)&value, sizeof(value));
}

void sl_gguf_bool(struct sl_gguf *gguf, const char *key, bool value)
{
	begin_pair(gguf, key, SL_GGUF_BOOL);
	sl_gguf_put(&gguf->text, value, 1);
}

void sl_gguf_string(struct sl_gguf *gguf, const char *key, const char *value, size_t len)
{
	begin_pair(gguf, key, SL_GGUF_STRING);
	sl_gguf_put_string(&gguf->text, value, len);
}

void sl_gguf_array(struct sl_gguf *gguf, const char *key, enum sl_gguf_type type, uint64_t n)
{
	begin_pair(gguf, key, SL_GGUF_ARRAY);
	sl_gguf_put(&gguf->text, type, 4);
	sl_gguf_put(&gguf->text, n, 8);
}

/* "llama.block_count" */
static const char *key_of(const struct family *family, const char *name, char key[64])
{
	snprintf(key, 64, "%s.%s", family->name, name);
	return key;
}

/* Positions that the model was made for; a number that is none is as good as none. */
static uint64_t context_length(const struct sl_config *config)
{
	uint64_t n = 0;

	if (sl_config_u64(config, SL_TEXT, "max_position_embeddings", &n, NULL) || n > UINT32_MAX)
		return 2048;
	return n;
}

static void add_sizes(struct sl_gguf *gguf, const struct sl_model *model, const struct family *family)
{
	const struct sl_dims *d = &model->config.dims[SL_TEXT];
	const struct {
		const char *name;
		uint64_t value;
	} sizes[] = {
		{ "block_count", d->layers },
		{ "context_length", context_length(&model->config) },
		{ "embedding_length", d->hidden },
		{ "feed_forward_length", d->inter },
		{ "attention.head_count", d->heads },
		{ "attention.head_count_kv", d->kv_heads },
		{ "attention.key_length", d->head_dim },
		{ "attention.value_length", d->head_dim },
		{ "rope.dimension_count", d->head_dim },
		{ "vocab_size", d->vocab },
	};
	char key[64];

	for (size_t i = 0; i < SL_COUNT(sizes); i++)
		sl_gguf_u32(gguf, key_of(family, sizes[i].name, key), sizes[i].value);
}

static void add_numbers(struct sl_gguf *gguf, const struct sl_config *config, const struct family *family)
{
	double eps = sl_config_double(config, SL_TEXT, "rms_norm_eps", 1e-6);
	char key[64];

	sl_gguf_f32(gguf, key_of(family, "rope.freq_base", key), (float)rope_theta(config));
	sl_gguf_f32(gguf, key_of(family, "attention.layer_norm_rms_epsilon", key), (float)eps);
	if (!sl_config_rope_is(config, "linear"))
		return;
	sl_gguf_string(gguf, key_of(family, "rope.scaling.type", key), "linear", strlen("linear"));
	sl_gguf_f32(gguf, key_of(family, "rope.scaling.factor", key),
		    (float)sl_config_rope_number(config, "factor", 1));
}

static int describe(struct sl_gguf *gguf, const struct sl_plan *plan)
{
	const struct sl_model *model = plan->model;
	const struct family *family = find_family(model);

	sl_gguf_string(gguf, "general.architecture", family->name, strlen(family->name));
	sl_gguf_string(gguf, "general.type", "model", strlen("model"));
	sl_gguf_u32(gguf, "general.file_type", types[plan->tensors[0].dtype].file);
	add_sizes(gguf, model, family);
	add_numbers(gguf, &model->config, family);
	return sl_gguf_add_tokenizer(gguf, model, plan->err);
}

/* ---- the file ---- */

static uint64_t padding(uint64_t len)
{
	return (ALIGNMENT - len % ALIGNMENT) % ALIGNMENT;
}

static void put_tensors(struct sl_text *text, const struct sl_plan *plan)
{
	uint64_t off = 0;

	for (uint32_t i = 0; i < plan->n_tensors; i++) {
		const struct sl_output *t = &plan->tensors[i];
		sl_gguf_put_string(text, t->name, strlen(t->name));
		sl_gguf_put(text, t->n_dims, 4);
		for (unsigned d = t->n_dims; d-- > 0;)
			sl_gguf_put(text, t->shape[d], 8);
		sl_gguf_put(text, types[t->dtype].tensor, 4);
		sl_gguf_put(text, off, 8);
		off += t->len + padding(t->len);
	}
}

/* Everything in front of the tensors, in the view's arena. */
static int make_header(struct sl_plan *plan, struct sl_piece *piece)
{
	struct sl_gguf pairs = { SL_TEXT_INIT, 0 };
	struct sl_text text = SL_TEXT_INIT;
	char *copy = NULL;
	int ret = describe(&pairs, plan);

	sl_text_add(&text, "GGUF", 4);
	sl_gguf_put(&text, VERSION, 4);
	sl_gguf_put(&text, plan->n_tensors, 8);
	sl_gguf_put(&text, pairs.n, 8);
	sl_text_add(&text, pairs.text.bytes, pairs.text.len);
	put_tensors(&text, plan);
	for (uint64_t fill = padding(text.len); fill > 0; fill--)
		sl_text_add(&text, "", 1);
	if (!ret && !pairs.text.failed && !text.failed)
		copy = sl_arena_strndup(&plan->view->arena, text.bytes, text.len);
	*piece = (struct sl_piece){ .len = text.len, .data = (const unsigned char *)copy, .op = SL_OP_DATA };
	sl_text_release(&pairs.text);
	sl_text_release(&text);
	return ret || copy ? ret : sl_fail(plan->err, ENOMEM, "out of memory");
}

static struct sl_piece *lay_tensor(struct sl_plan *plan, struct sl_file *file, struct sl_output *t, struct sl_piece *at)
{
	uint64_t pad = padding(t->len);

	t->file = 0;
	t->off = file->size;
	at = sl_plan_lay_pieces(plan, &t, 1, at);
	if (pad)
		*at++ = (struct sl_piece){ .off = t->off + t->len, .len = pad, .op = SL_OP_ZERO };
	file->size += t->len + pad;
	plan->view->bytes += t->len;
	return at;
}

static int lay(struct sl_plan *plan)
{
	struct sl_view *view = plan->view;
	struct sl_file *file = sl_plan_file(plan);
	struct sl_piece *pieces = sl_arena_array(&view->arena, (size_t)plan->n_pieces + plan->n_tensors + 1,
						 sizeof(*pieces)),
			*at = pieces;

	if (!file || !pieces)
		return sl_fail(plan->err, ENOMEM, "out of memory");
	int ret = make_header(plan, at++);
	if (ret)
		return ret;
	*file = (struct sl_file){
		.name = plan->engine->file_name(plan, 0, 1), .size = pieces->len, .model = plan->model, .pieces = pieces
	};
	for (uint32_t i = 0; i < plan->n_tensors; i++)
		at = lay_tensor(plan, file, &plan->tensors[i], at);
	file->n_pieces = (uint32_t)(at - pieces);
	view->n_weights = 1;
	return file->name ? sl_plan_keep_tensors(plan) : sl_fail(plan->err, ENOMEM, "out of memory");
}

const struct sl_container sl_gguf_container = { "gguf", lay };
