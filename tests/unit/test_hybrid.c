/*
 * test_hybrid.c - families whose layers have linear attention or full attention in turn: what of either is shared among
 * ranks, and how.
 *
 * The names B72 and B74 are those of public bug reports against other loaders, restated as the smallest input that shows
 * the same fault.
 */
#include "checkpoint.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEN(a) (sizeof(a) / sizeof((a)[0]))

TestSuite(hybrid, .init = checkpoint_setup, .fini = checkpoint_teardown, .timeout = 60);

struct stored {
	const char *dtype, *shape, *name; /* "%u": of each expert */
};

enum { EXPERTS = 2 };

static void add(const struct stored *tensors, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		for (unsigned e = 0; e < (strstr(tensors[i].name, "%u") ? EXPERTS : 1); e++) {
			char name[160], *mark;
			strcpy(name, tensors[i].name);
			mark = strstr(name, "%u");
			if (mark) {
				mark[0] = (char)('0' + e);
				memmove(mark + 1, mark + 2, strlen(mark + 2) + 1);
			}
			checkpoint_add(tensors[i].dtype, tensors[i].shape, "%s", name);
		}
	}
}

static struct sl_model *opened(const char *config, const struct stored *tensors, size_t n)
{
	checkpoint_begin(config);
	add(tensors, n);
	checkpoint_write(2);
	return checkpoint_open();
}

static void expect(const struct sl_model *model, const char *path, unsigned rank, const char *output, const char *parts)
{
	struct sl_view *view = checkpoint_view(model, path, 0, rank);

	checkpoint_expect(view, output, parts);
	sl_view_close(view);
}

#define L0     "model.layers.0."
#define L1     "model.layers.1."
#define LINEAR L0 "linear_attn."

#define BF(shape, name)             \
	{                           \
		"BF16", shape, name \
	}
#define ENDS	 BF("64 16", "model.embed_tokens.weight"), BF("16", "model.norm.weight"), BF("64 16", "lm_head.weight")
#define NORMS(p) BF("16", p "input_layernorm.weight"), BF("16", p "post_attention_layernorm.weight")
#define SPARSE(p)                                                                                             \
	BF("2 16", p "gate.weight"), BF("1 16", p "shared_expert_gate.weight"),                               \
		BF("8 16", p "shared_expert.gate_proj.weight"), BF("8 16", p "shared_expert.up_proj.weight"), \
		BF("16 8", p "shared_expert.down_proj.weight"), BF("8 16", p "experts.%u.gate_proj.weight"),  \
		BF("8 16", p "experts.%u.up_proj.weight"), BF("16 8", p "experts.%u.down_proj.weight")

/* Two key heads of 4, four value heads of 2. */
static const char next_config[] =
	"{\"architectures\":[\"Qwen3NextForCausalLM\"],\"num_hidden_layers\":2,\"hidden_size\":16,\"num_attention_heads\":4,"
	"\"num_key_value_heads\":2,\"head_dim\":4,\"intermediate_size\":8,\"vocab_size\":64,\"full_attention_interval\":2,"
	"\"linear_num_key_heads\":2,\"linear_num_value_heads\":4,\"linear_key_head_dim\":4,\"linear_value_head_dim\":2,"
	"\"num_experts\":2,\"moe_intermediate_size\":8,\"torch_dtype\":\"bfloat16\"}";
static const struct stored next[] = {
	ENDS,
	NORMS(L0),
	NORMS(L1),
	SPARSE(L0 "mlp."),
	SPARSE(L1 "mlp."),
	BF("4", LINEAR "dt_bias"),
	BF("4", LINEAR "A_log"),
	BF("24 1 4", LINEAR "conv1d.weight"),
	BF("32 16", LINEAR "in_proj_qkvz.weight"),
	BF("8 16", LINEAR "in_proj_ba.weight"),
	BF("2", LINEAR "norm.weight"),
	BF("16 8", LINEAR "out_proj.weight"),
	BF("32 16", L1 "self_attn.q_proj.weight"),
	BF("8 16", L1 "self_attn.k_proj.weight"),
	BF("8 16", L1 "self_attn.v_proj.weight"),
	BF("16 16", L1 "self_attn.o_proj.weight"),
	BF("4", L1 "self_attn.q_norm.weight"),
	BF("4", L1 "self_attn.k_norm.weight"),
	BF("3 16", "mtp.fc.weight"),
};

/* b and a of a key head's values are stored together: the middle of the tensor is between heads, not between b and a. */
Test(hybrid, B74_rows_of_a_key_head_stay_together)
{
	struct sl_model *model = opened(next_config, next, LEN(next));

	expect(model, "vllm/tp2", 0, LINEAR "in_proj_ba.weight", LINEAR "in_proj_ba.weight[0:4]");
	expect(model, "vllm/tp2", 1, LINEAR "in_proj_ba.weight", LINEAR "in_proj_ba.weight[4:8]");
	expect(model, "vllm/tp2", 1, LINEAR "in_proj_qkvz.weight", LINEAR "in_proj_qkvz.weight[16:32]");
	/* The convolution's q, k and v are whole ones, one after another. */
	expect(model, "vllm/tp2", 1, LINEAR "conv1d.weight",
	       LINEAR "conv1d.weight[4:8] " LINEAR "conv1d.weight[12:16] " LINEAR "conv1d.weight[20:24]");
	expect(model, "vllm/tp2", 1, LINEAR "out_proj.weight", LINEAR "out_proj.weight[:,4:8]");
	expect(model, "vllm/tp2", 0, L1 "self_attn.qkv_proj.weight",
	       L1 "self_attn.q_proj.weight[0:16] " L1 "self_attn.k_proj.weight[0:4] " L1
		  "self_attn.v_proj.weight[0:4]");
	/* Two ranks a key head would cut it. */
	checkpoint_view_refused(model, "hf/tp4", "in_proj_qkvz", "2 linear key heads do not divide by tp 4",
				"(tp 1, 2 work)", NULL);
	cr_assert_eq(model->n_drafts, 1);
	sl_model_close(model);
}

/* One number a head is divided with the heads. */
Test(hybrid, B72_numbers_of_heads)
{
	struct sl_model *model = opened(next_config, next, LEN(next));

	expect(model, "vllm/tp2", 1, LINEAR "dt_bias", LINEAR "dt_bias[2:4]");
	expect(model, "hf/tp2", 1, LINEAR "A_log", LINEAR "A_log[2:4]");
	struct sl_view *view = checkpoint_view(model, "vllm/tp2", 0, 1);
	const struct sl_output *out = sl_view_find(view, LINEAR "A_log");
	cr_assert(out && out->dtype == SL_F32 && out->n_dims == 1 && out->shape[0] == 2);
	sl_view_close(view);
	sl_model_close(model);
}

#define ATTN L0 "self_attn."
#define MOE  L1 "block_sparse_moe."

static const char kimi_config[] =
	"{\"architectures\":[\"KimiLinearForCausalLM\"],\"num_hidden_layers\":2,\"hidden_size\":16,\"num_attention_heads\":4,"
	"\"intermediate_size\":8,\"vocab_size\":64,\"linear_attn_config\":{\"kda_layers\":[1],\"full_attn_layers\":[2],"
	"\"num_heads\":4,\"head_dim\":4},\"num_experts\":2,\"moe_intermediate_size\":8,\"num_shared_experts\":1,"
	"\"first_k_dense_replace\":1,\"dtype\":\"bfloat16\"}";
static const struct stored kimi[] = {
	ENDS,
	NORMS(L0),
	NORMS(L1),
	BF("16 16", ATTN "q_proj.weight"),
	BF("16 16", ATTN "k_proj.weight"),
	BF("16 16", ATTN "v_proj.weight"),
	BF("16 1 4", ATTN "q_conv1d.weight"),
	BF("16 1 4", ATTN "k_conv1d.weight"),
	BF("16 1 4", ATTN "v_conv1d.weight"),
	{ "F32", "1 1 4 1", ATTN "A_log" },
	{ "F32", "16", ATTN "dt_bias" },
	BF("4 16", ATTN "f_a_proj.weight"),
	BF("16 4", ATTN "f_b_proj.weight"),
	BF("4 16", ATTN "b_proj.weight"),
	BF("4 16", ATTN "g_a_proj.weight"),
	BF("16 4", ATTN "g_b_proj.weight"),
	BF("4", ATTN "o_norm.weight"),
	BF("16 16", ATTN "o_proj.weight"),
	BF("8 16", L0 "mlp.gate_proj.weight"),
	BF("8 16", L0 "mlp.up_proj.weight"),
	BF("16 8", L0 "mlp.down_proj.weight"),
	BF("24 16", L1 "self_attn.q_proj.weight"),
	BF("10 16", L1 "self_attn.kv_a_proj_with_mqa.weight"),
	BF("8", L1 "self_attn.kv_a_layernorm.weight"),
	BF("32 8", L1 "self_attn.kv_b_proj.weight"),
	BF("16 16", L1 "self_attn.o_proj.weight"),
	BF("2 16", MOE "gate.weight"),
	{ "F32", "2", MOE "gate.e_score_correction_bias" },
	BF("8 16", MOE "experts.%u.w1.weight"),
	BF("8 16", MOE "experts.%u.w3.weight"),
	BF("16 8", MOE "experts.%u.w2.weight"),
	BF("8 16", MOE "shared_experts.gate_proj.weight"),
	BF("8 16", MOE "shared_experts.up_proj.weight"),
	BF("16 8", MOE "shared_experts.down_proj.weight"),
};

/* The narrow projection of the decay is whole on every rank, among parts that are not. */
Test(hybrid, kimi_joins_what_is_shared_and_what_is_whole)
{
	struct sl_model *model = opened(kimi_config, kimi, LEN(kimi));

	expect(model, "vllm/tp2", 1, ATTN "in_proj_qkvgfab.weight",
	       ATTN "q_proj.weight[8:16] " ATTN "k_proj.weight[8:16] " ATTN "v_proj.weight[8:16] " ATTN
		    "b_proj.weight[2:4] " ATTN "f_a_proj.weight");
	expect(model, "vllm/tp2", 1, ATTN "g_a_proj.weight", ATTN "g_a_proj.weight");
	expect(model, "vllm/tp2", 1, ATTN "g_b_proj.weight", ATTN "g_b_proj.weight[8:16]");
	expect(model, "vllm/tp2", 0, L1 "self_attn.kv_b_proj.weight", L1 "self_attn.kv_b_proj.weight[0:16]");
	sl_model_close(model);
}

/* One number a head, with axes of one around it or without. */
Test(hybrid, B72_numbers_of_heads_on_the_third_axis)
{
	static const char *const shapes[] = { "1 1 4 1", "4" };

	for (size_t i = 0; i < LEN(shapes); i++) {
		checkpoint_begin(kimi_config);
		add(kimi, LEN(kimi));
		checkpoint_replace("F32", shapes[i], ATTN "A_log");
		checkpoint_write(1);
		struct sl_model *model = checkpoint_open();
		struct sl_view *view = checkpoint_view(model, "vllm/tp2", 0, 1);
		const struct sl_output *out = sl_view_find(view, ATTN "A_log");
		cr_assert(out && out->n_dims == 1 && out->shape[0] == 2 && out->len == 8);
		unsigned char *got = checkpoint_read(view, out);
		cr_assert(memcmp(got, checkpoint_find(ATTN "A_log")->bytes + 8, 8) == 0);
		free(got);
		sl_view_close(view);
		sl_model_close(model);
	}
	checkpoint_begin(kimi_config);
	add(kimi, LEN(kimi));
	checkpoint_replace("F32", "2 2", ATTN "A_log");
	checkpoint_write(1);
	checkpoint_refused("'" ATTN "A_log' has 2 dimensions", "expected 1", NULL);
}

/* Rows 4 to 7 of that expert's matrix, then zeros up to 256 rows of 16. */
static void expect_filled(const unsigned char *rows, const char *matrix)
{
	char name[160];

	snprintf(name, sizeof(name), MOE "experts.%s.weight", matrix);
	cr_assert(memcmp(rows, checkpoint_find(name)->bytes + 4 * 32, 4 * 32) == 0, "%s", name);
	for (unsigned i = 4 * 32; i < 256 * 32; i++)
		cr_assert_eq(rows[i], 0);
}

/* Experts of fewer than 256 rows a rank are filled up, gate and up each by itself; whole ones are left alone. */
Test(hybrid, kimi_fills_experts_up)
{
	struct sl_model *model = opened(kimi_config, kimi, LEN(kimi));
	struct sl_view *view = checkpoint_view(model, "vllm/tp2", 0, 1);
	const struct sl_output *w13 = sl_view_find(view, MOE "experts.routed_experts.w13_weight");
	const struct sl_output *w2 = sl_view_find(view, MOE "experts.routed_experts.w2_weight");

	cr_assert(w13 && w13->shape[0] == 2 && w13->shape[1] == 512 && w13->shape[2] == 16);
	cr_assert(w2 && w2->shape[0] == 2 && w2->shape[1] == 16 && w2->shape[2] == 256);
	unsigned char *rows = checkpoint_read(view, w13);
	expect_filled(rows, "0.w1");
	expect_filled(rows + 256 * 32, "0.w3");
	expect_filled(rows + 512 * 32, "1.w1");
	expect_filled(rows + 768 * 32, "1.w3");
	free(rows);
	unsigned char *got = checkpoint_read(view, w2), *stored = checkpoint_find(MOE "experts.1.w2.weight")->bytes;
	for (unsigned row = 0; row < 16; row++) {
		const unsigned char *at = got + (16 + row) * 512;
		cr_assert(memcmp(at, stored + row * 16 + 8, 8) == 0, "columns 4 to 7 of row %u", row);
		for (unsigned i = 8; i < 512; i++)
			cr_assert_eq(at[i], 0);
	}
	free(got);
	sl_view_close(view);
	expect(model, "vllm/tp1", 0, MOE "experts.routed_experts.w13_weight",
	       MOE "experts.0.w1.weight " MOE "experts.0.w3.weight " MOE "experts.1.w1.weight " MOE
		   "experts.1.w3.weight");
	expect(model, "vllm/tp2-ep", 1, MOE "experts.routed_experts.w2_weight", MOE "experts.1.w2.weight");
	sl_model_close(model);
}

Test(hybrid, kimi_that_is_not_known)
{
	char config[1000];

	snprintf(config, sizeof(config), "%.*s,\"min_moe_intermediate_per_partition\":128}",
		 (int)strlen(kimi_config) - 1, kimi_config);
	checkpoint_begin(config);
	add(kimi, LEN(kimi));
	checkpoint_write(1);
	checkpoint_refused("config.json: min_moe_intermediate_per_partition is not known", NULL);
	checkpoint_begin("{\"architectures\":[\"KimiLinearForCausalLM\"],\"num_hidden_layers\":2,\"hidden_size\":16,"
			 "\"num_attention_heads\":4,\"vocab_size\":64}");
	add(kimi, LEN(kimi));
	checkpoint_write(1);
	checkpoint_refused("the heads of linear attention, or their sizes, are absent", NULL);
}
