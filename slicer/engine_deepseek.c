/*
 * engine_deepseek.c - what DeepSeek's reference code reads: model{rank}-mp{ranks}.safetensors, one file per rank, under names of
 * its own (deepseek-ai/DeepSeek-V3, -V3.2-Exp and -V4, inference/convert.py).
 *
 *      model.layers.3.self_attn.q_b_proj.weight_scale_inv  ->  layers.3.attn.wq_b.scale, rows divided
 *      model.layers.3.mlp.experts.7.up_proj.weight         ->  layers.3.ffn.experts.7.w3.weight, whole, on one rank
 *
 * Names are renamed part by part. The part before the last says which axis is cut; a scale is cut as its weight is, since its
 * blocks divide with it. Layers beyond num_hidden_layers (MTP) are left out.
 *
 * V4's checkpoints have the reference code's own names, and what no row speaks of is whole. Its MTP layer stays. The bytes of
 * its experts are called what they are, F4, or in layouts "-fp8" become FP8 in blocks; wo_a becomes BF16.
 */
#include "slicer/plan.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Axes; of UNSCALED rows the product with their scales takes the place of both. */
enum { UNKNOWN = -2, WHOLE = -1, ROWS = 0, COLUMNS = 1, UNSCALED };
enum { PART_MAX = 32, PARTS_MAX = 32 }; /* bytes of a part's name, with the NUL; parts of a release */

struct part {
	const char *stored, *held;
	int axis;
};

/* clang-format off */
/* To add a module: its part of the name, what the reference code calls it, and the axis that is cut. */
static const struct part renamed_parts[] = {
	{ "embed_tokens",             "embed",        ROWS },
	{ "input_layernorm",          "attn_norm",    WHOLE },
	{ "post_attention_layernorm", "ffn_norm",     WHOLE },
	{ "q_proj",                   "wq",           ROWS },
	{ "q_a_proj",                 "wq_a",         WHOLE },
	{ "q_a_layernorm",            "q_norm",       WHOLE },
	{ "q_b_proj",                 "wq_b",         ROWS },
	{ "kv_a_proj_with_mqa",       "wkv_a",        WHOLE },
	{ "kv_a_layernorm",           "kv_norm",      WHOLE },
	{ "kv_b_proj",                "wkv_b",        ROWS },
	{ "o_proj",                   "wo",           COLUMNS },
	{ "wq_b",                     "wq_b",         WHOLE }, /* of V3.2's indexer */
	{ "wk",                       "wk",           WHOLE },
	{ "k_norm",                   "k_norm",       WHOLE },
	{ "weights_proj",             "weights_proj", WHOLE },
	{ "gate",                     "gate",         WHOLE },
	{ "gate_proj",                "w1",           ROWS },
	{ "down_proj",                "w2",           COLUMNS },
	{ "up_proj",                  "w3",           ROWS },
	{ "norm",                     "norm",         WHOLE },
	{ "lm_head",                  "head",         ROWS },
	/* Parts that are no module. */
	{ "self_attn",                "attn",         UNKNOWN },
	{ "mlp",                      "ffn",          UNKNOWN },
	{ "weight_scale_inv",         "scale",        UNKNOWN },
	{ "e_score_correction_bias",  "bias",         UNKNOWN },
};

static const struct part original_parts[] = {
	{ "embed",        "embed",        ROWS },
	{ "wq_b",         "wq_b",         ROWS }, /* of the attention, and of its indexer */
	{ "weights_proj", "weights_proj", ROWS },
	{ "attn_sink",    "attn_sink",    ROWS },
	{ "wo_a",         "wo_a",         UNSCALED },
	{ "wo_b",         "wo_b",         COLUMNS },
	{ "head",         "head",         ROWS },
};

/* To add a release: its architecture, its parts, and whether its checkpoints have the reference code's names already. */
static const struct release {
	const char *architecture;
	const struct part *parts;
	size_t n_parts;
	bool original;
} releases[] = {
	{ "DeepseekV2ForCausalLM",  renamed_parts,  SL_COUNT(renamed_parts),  false },
	{ "DeepseekV3ForCausalLM",  renamed_parts,  SL_COUNT(renamed_parts),  false },
	{ "DeepseekV32ForCausalLM", renamed_parts,  SL_COUNT(renamed_parts),  false },
	{ "DeepseekV4ForCausalLM",  original_parts, SL_COUNT(original_parts), true },
};
/* clang-format on */

_Static_assert(SL_COUNT(renamed_parts) <= PARTS_MAX && SL_COUNT(original_parts) <= PARTS_MAX, "too many parts");

/* A stored name taken apart: what it becomes, and what happens to the tensor. */
struct renamed {
	char name[SL_MODULE_NAME_MAX];
	int axis;
	bool unscaled;
	uint64_t expert; /* of a routed expert, else UINT64_MAX */
};

/* ---- names ---- */

static const struct release *find_release(const struct sl_model *model)
{
	for (size_t i = 0; i < SL_COUNT(releases) && model->config.architecture; i++) {
		if (strcmp(releases[i].architecture, model->config.architecture) == 0)
			return &releases[i];
	}
	return NULL;
}

/* A release's parts by the length of their stored name: a model has a hundred thousand names, of half a dozen parts each. */
struct parts {
	const struct release *release;
	uint8_t first[PART_MAX],
		next[PARTS_MAX + 1]; /* 1 + index of the first part of a length, and of the one behind a part */
};

static void sort_parts(struct parts *parts, const struct release *release)
{
	*parts = (struct parts){ .release = release };
	for (size_t i = release->n_parts; i > 0; i--) {
		size_t len = strlen(release->parts[i - 1].stored);
		parts->next[i] = parts->first[len];
		parts->first[len] = (uint8_t)i;
	}
}

static const struct part *find_part(const struct parts *parts, const char *text, size_t len)
{
	for (size_t i = len < PART_MAX ? parts->first[len] : 0; i > 0; i = parts->next[i]) {
		const struct part *part = &parts->release->parts[i - 1];
		if (memcmp(part->stored, text, len) == 0)
			return part;
	}
	return NULL;
}

/* The names of tensors that the reference code has: others of a module (packed integers, input scales) it would not know. */
static bool is_known_tensor(const char *last)
{
	static const char *const known[] = { "weight", "bias", "weight_scale_inv", "e_score_correction_bias" };

	for (size_t i = 0; i < SL_COUNT(known); i++) {
		if (strcmp(known[i], last) == 0)
			return true;
	}
	return false;
}

/* A dot, but in front of the first part, and the part. What does not fit is cut. Returns the new length. */
static size_t append_part(char *name, size_t used, const char *part, size_t len)
{
	if (used + len + 2 > SL_MODULE_NAME_MAX)
		return used;
	if (used)
		name[used++] = '.';
	memcpy(name + used, part, len);
	name[used + len] = '\0';
	return used + len;
}

/* What a part of a name says of the tensor. In renamed checkpoints the last module counts, in original ones any, and a
 * tensor that is a module itself (attn_sink) too. */
static void heed_part(const struct release *release, const struct part *part, bool is_last, struct renamed *to)
{
	if (release->original ? !part : is_last)
		return;
	to->axis = part ? part->axis : UNKNOWN;
	to->unscaled = to->axis == UNSCALED;
	if (to->unscaled)
		to->axis = ROWS;
}

static int rename_tensor(const struct parts *parts, const struct sl_tensor *tensor, struct renamed *to,
			 struct sl_error *err)
{
	const struct release *release = parts->release;
	const char *at = tensor->name + (strncmp(tensor->name, "model.", 6) == 0 ? 6 : 0);
	bool of_experts = false, is_last = false;
	size_t used = 0, len;

	to->axis = release->original ? WHOLE : UNKNOWN;
	to->unscaled = false;
	to->expert = UINT64_MAX;
	for (;; at += len + 1) {
		len = (size_t)(strchrnul(at, '.') - at);
		is_last = at[len] == '\0';
		const struct part *part = find_part(parts, at, len);
		used = append_part(to->name, used, part ? part->held : at, part ? strlen(part->held) : len);
		heed_part(release, part, is_last, to);
		if (is_last)
			break;
		if (of_experts)
			to->expert = strtoull(at, NULL, 10);
		of_experts = len == strlen("experts") && strncmp(at, "experts", len) == 0;
	}
	if (to->axis == UNKNOWN || !(release->original || is_known_tensor(at)))
		return sl_fail(err, EINVAL, "tensor '%s': DeepSeek's reference code has no place for it",
			       SL_ESC(tensor->name));
	return 0;
}

/* ---- tensors ---- */

/* What `rank` holds of a tensor; cut->n is 0 for nothing. */
static int cut_tensor(const struct sl_model *model, const struct sl_tensor *tensor, const struct renamed *to,
		      const struct sl_layout *layout, unsigned rank, struct sl_cut *cut, struct sl_error *err)
{
	uint64_t each = model->config.dims[SL_TEXT].experts / layout->tp;

	*cut = (struct sl_cut){ .axis = -1, .n = 1 };
	if (to->expert != UINT64_MAX && each) {
		cut->n = to->expert / each == rank;
		return 0;
	}
	return to->axis == WHOLE ? 0 : sl_cut_evenly(cut, tensor, to->axis, layout, rank, err);
}

/* Blocks of FP8 times their scales, which are another tensor and cut alike. */
static int add_unscaled(struct sl_plan *plan, const char *name, const struct sl_tensor *values,
			const struct sl_tensor *scales, const struct sl_cut *cut)
{
	static const struct sl_weight plain = { .role = SL_WHOLE };
	struct sl_matrix m = sl_stored_matrix(values, &plain), s = sl_stored_matrix(scales, &plain);
	uint64_t shape[2] = { cut->n, m.cols };

	if (!s.rows || !s.cols || !m.rows || !m.cols || m.rows % s.rows || m.cols % s.cols)
		return sl_fail(plan->err, EINVAL, "tensor '%s': its blocks are not whole ones of '%s'",
			       SL_ESC(scales->name), SL_ESC(values->name));
	const uint64_t block[2] = { m.rows / s.rows, m.cols / s.cols };
	int ret = sl_plan_tensor(plan, name, SL_BF16);
	if (!ret)
		ret = sl_plan_scaled(plan, &plain, values, scales, block, (struct sl_range){ cut->first, cut->n, 0 });
	return ret ? ret : sl_plan_shape(plan, shape, 2);
}

/* Two F4 elements are one stored byte. */
static int add_f4(struct sl_plan *plan, const char *name, const struct sl_tensor *tensor)
{
	uint64_t shape[2] = { tensor->shape[0], 2 * tensor->shape[1] };

	int ret = sl_plan_tensor(plan, name, SL_F4);
	if (!ret)
		ret = sl_plan_whole(plan, tensor);
	return ret ? ret : sl_plan_shape(plan, shape, 2);
}

/* The "weight" or "scale" of a tensor's module, which may be itself. */
static const struct sl_tensor *find_beside(const struct sl_model *model, const struct sl_tensor *tensor,
					   const char *last)
{
	const char *dot = strrchr(tensor->name, '.');
	char name[SL_MODULE_NAME_MAX];

	if (!dot)
		return NULL;
	snprintf(name, sizeof(name), "%.*s.%s", (int)(dot - tensor->name), tensor->name, last);
	return sl_shards_find(&model->shards, name);
}

static bool is_f4(const struct sl_tensor *tensor, const struct renamed *to)
{
	return to->expert != UINT64_MAX && tensor->dtype == SL_I8 && tensor->n_dims == 2;
}

static bool wants_fp8(const struct sl_layout *layout)
{
	return layout->dtype == SL_F8_E4M3;
}

/* The weight and the scales of a module of an expert that is to become FP8; *weight is NULL where the tensor is of none. */
static int find_f4(const struct sl_model *model, const struct sl_tensor *tensor, const struct renamed *to,
		   const struct sl_tensor **weight, const struct sl_tensor **scales, struct sl_error *err)
{
	const struct sl_tensor *w = find_beside(model, tensor, "weight"), *s = find_beside(model, tensor, "scale");

	*weight = NULL;
	if (!w || !is_f4(w, to) || (tensor != w && tensor != s))
		return 0;
	if (w->shape[0] % 128 || w->shape[1] % 64)
		return sl_fail(err, EINVAL, "tensor '%s': %llu x %llu F4 elements are no whole blocks of 128 x 128",
			       SL_ESC(w->name), (unsigned long long)w->shape[0], 2ull * w->shape[1]);
	if (!s || s->dtype != SL_F8_E8M0 || s->n_dims != 2 || s->shape[0] != w->shape[0] ||
	    s->shape[1] != w->shape[1] / 16)
		return sl_fail(err, EINVAL,
			       "tensor '%s': it has not one scale of F8_E8M0 for each 32 elements of a row",
			       SL_ESC(w->name));
	*weight = w;
	*scales = s;
	return 0;
}

static int add_fp8(struct sl_plan *plan, const struct sl_tensor *tensor, const struct renamed *to,
		   const struct sl_tensor *weight, const struct sl_tensor *scales)
{
	bool is_weight = tensor == weight;
	uint64_t shape[2] = { scales->shape[0], scales->shape[1] * 32 };

	if (!is_weight)
		shape[0] /= 128, shape[1] /= 128;
	int ret = sl_plan_tensor(plan, to->name, is_weight ? SL_F8_E4M3 : SL_F8_E8M0);
	if (!ret)
		ret = sl_plan_regrouped(plan, is_weight ? weight : NULL, scales);
	return ret ? ret : sl_plan_shape(plan, shape, 2);
}

static int add_tensor(struct sl_plan *plan, const struct sl_tensor *tensor, const struct renamed *to,
		      const struct sl_cut *cut)
{
	const struct sl_tensor *weight = NULL, *scales = NULL;

	if (to->unscaled)
		scales = find_beside(plan->model, tensor, "scale");
	if (scales)
		return scales == tensor ? 0 : add_unscaled(plan, to->name, tensor, scales, cut);
	if (wants_fp8(&plan->view->layout)) {
		int ret = find_f4(plan->model, tensor, to, &weight, &scales, plan->err);
		if (ret || weight)
			return ret ? ret : add_fp8(plan, tensor, to, weight, scales);
	}
	return is_f4(tensor, to) ? add_f4(plan, to->name, tensor) : sl_plan_stored(plan, to->name, tensor, cut);
}

/* In layouts "-fp8": is there an F4 expert, and can every one become FP8? */
static int check_fp8(const struct sl_model *model, struct sl_error *err)
{
	const struct release *release = find_release(model);
	struct parts parts;
	bool found = false;
	int ret = 0;

	sort_parts(&parts, release);
	for (uint32_t i = 0; i < model->shards.n_tensors && release->original && !ret; i++) {
		const struct sl_tensor *tensor = &model->shards.tensors[i], *weight, *scales;
		struct renamed to;
		ret = tensor->dtype == SL_I8 ? rename_tensor(&parts, tensor, &to, err) : 0;
		if (!ret && tensor->dtype == SL_I8)
			ret = find_f4(model, tensor, &to, &weight, &scales, err);
		found |= tensor->dtype == SL_I8 && !ret && weight;
	}
	if (!ret && !found)
		ret = sl_fail(err, EINVAL,
			      "only experts in F4 become FP8, and %s has none: use the layout without -fp8",
			      model->config.architecture);
	return ret;
}

static int check_model(const struct sl_model *model, const struct sl_layout *layout, struct sl_error *err)
{
	uint64_t experts = model->config.dims[SL_TEXT].experts;

	if (!find_release(model))
		return sl_fail(err, EINVAL, "DeepSeek's reference code runs DeepSeek V2, V3, R1, V3.2 and V4, not %s",
			       SL_ESC(model->config.architecture ? model->config.architecture : model->arch->family));
	if (experts % layout->tp)
		return sl_fail(err, EINVAL, "%llu experts do not divide by %u ranks", (unsigned long long)experts,
			       layout->tp);
	return wants_fp8(layout) ? check_fp8(model, err) : 0;
}

/* Has every layer's experts, each tensor of one like that of any other? */
static bool has_like_experts(const struct sl_model *model)
{
	for (unsigned s = 0; s < model->arch->n_stacks; s++) {
		const struct sl_stack *stack = &model->arch->stacks[s];
		for (uint64_t l = 0; l < sl_stack_layers(model, stack); l++) {
			for (unsigned r = 0; r < stack->n_weights; r++) {
				if (sl_row_modules(model, stack, &stack->weights[r]) > 1 &&
				    !sl_is_alike(model, s, l, r, stack->n_weights))
					return false;
			}
		}
	}
	return true;
}

/* The first tensor behind all of the experts that this one belongs to: ':' comes behind the digits. */
static uint32_t behind_experts(const struct sl_model *model, uint32_t i)
{
	const char *name = model->shards.tensors[i].name, *number = strstr(name, ".experts.");
	char behind[SL_MODULE_NAME_MAX];

	if (!number)
		return i + 1;
	snprintf(behind, sizeof(behind), "%.*s:", (int)(number + strlen(".experts.") - name), name);
	uint32_t next = sl_shards_seek_near(&model->shards, behind, i + 1);
	return next > i ? next : i + 1;
}

/* Every tensor of the rank, but renamed checkpoints' drafts. Without a plan only what may be refused: what is true of one
 * expert is true of those that are stored alike. */
static int for_each(const struct sl_model *model, const struct sl_layout *layout, unsigned rank, struct sl_plan *plan,
		    struct sl_error *err)
{
	const struct release *release = find_release(model);
	int ret = check_model(model, layout, err);
	uint32_t drafts = 0; /* passed by; they are in the order of their tensors */
	bool one_is_all = !plan && !ret && has_like_experts(model);
	struct parts parts;

	if (!ret)
		sort_parts(&parts, release);
	for (uint32_t i = 0; i < model->shards.n_tensors && !ret; i++) {
		const struct sl_tensor *tensor = &model->shards.tensors[i];
		struct renamed to;
		struct sl_cut cut;
		bool is_draft = drafts < model->n_drafts && model->drafts[drafts] == i;
		drafts += is_draft;
		if (is_draft && !release->original)
			continue;
		ret = rename_tensor(&parts, tensor, &to, err);
		if (!ret)
			ret = cut_tensor(model, tensor, &to, layout, rank, &cut, err);
		if (!ret && plan && cut.n)
			ret = add_tensor(plan, tensor, &to, &cut);
		if (!ret && one_is_all && !is_draft && to.expert != UINT64_MAX && to.expert > 0)
			i = behind_experts(model, i) - 1;
	}
	return ret;
}

int sl_deepseek_check(const struct sl_model *model, const struct sl_engine *engine, const struct sl_layout *layout,
		      struct sl_error *err)
{
	(void)engine;
	return for_each(model, layout, 0, NULL, err);
}

int sl_deepseek_plan(struct sl_plan *plan)
{
	return for_each(plan->model, &plan->view->layout, plan->rank, plan, plan->err);
}

char *sl_deepseek_name(const struct sl_plan *plan, uint32_t i, uint32_t n)
{
	(void)i, (void)n;
	return sl_arena_printf(&plan->view->arena, "model%u-mp%u.safetensors", plan->rank, plan->tp);
}

/* The converter copies the tokenizer's files. */
bool sl_deepseek_passes(const char *name)
{
	return fnmatch("*token*", name, FNM_PATHNAME) == 0;
}
