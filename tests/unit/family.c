/*
 * family.c - the families as rows. Sizes are such that every kind of border appears: a vocabulary that is no multiple
 * of 64, kv heads that some tp replicate and others divide, a hidden size that is not heads x head_dim where the
 * family allows it.
 */
#include "family.h"

#include "checkpoint.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEN(a)	       (sizeof(a) / sizeof((a)[0]))
#define ROWS_OF(table) .rows = table, .n_rows = LEN(table)

/* clang-format off */
#define QKV(p)                                                                          \
	{ p "q_proj.weight", "Q H", p "qkv_proj.weight", .share = ROWS },               \
	{ p "k_proj.weight", "K H", p "qkv_proj.weight", .share = KV_ROWS },            \
	{ p "v_proj.weight", "K H", p "qkv_proj.weight", .share = KV_ROWS }
#define QKV_BIAS(p)                                                                     \
	{ p "q_proj.bias", "Q", p "qkv_proj.bias", .share = ROWS },                     \
	{ p "k_proj.bias", "K", p "qkv_proj.bias", .share = KV_ROWS },                  \
	{ p "v_proj.bias", "K", p "qkv_proj.bias", .share = KV_ROWS }
#define MLP(p)                                                                          \
	{ p "gate_proj.weight", "I H", p "gate_up_proj.weight", .share = ROWS },        \
	{ p "up_proj.weight",   "I H", p "gate_up_proj.weight", .share = ROWS },        \
	{ p "down_proj.weight", "H I", "", .share = COLUMNS }
#define NORM(name)         { name ".weight", "H", .vllm = "" }
#define NORM_BIAS(name)    NORM(name), { name ".bias", "H", .vllm = "" }
#define LAYER              "model.layers.%u."

#define LLAMA_ENDS                                                                                   \
	{ "model.embed_tokens.weight", "V H", "", .share = VOCAB, .place = FIRST, .kind = EMBED },   \
	{ "model.norm.weight", "H", "", .place = LAST },                                             \
	{ "lm_head.weight", "V H", "", .share = VOCAB, .place = LAST, .kind = HEAD }
#define GEMMA_ENDS(p, head)                                                                          \
	{ p "embed_tokens.weight", "V H", "", .share = VOCAB, .kind = EMBED },                       \
	NORM(p "norm"),                                                                              \
	{ head, "V H", "", .share = VOCAB, .kind = HEAD }
#define GEMMA_NORMS(p)                                                                               \
	NORM(p "input_layernorm"), NORM(p "post_attention_layernorm"),                               \
	NORM(p "pre_feedforward_layernorm"), NORM(p "post_feedforward_layernorm")

static const struct family_row llama[] = {
	LLAMA_ENDS,
	NORM(LAYER "input_layernorm"), NORM(LAYER "post_attention_layernorm"),
	QKV(LAYER "self_attn."),
	{ LAYER "self_attn.o_proj.weight", "H Q", "", .share = COLUMNS },
	MLP(LAYER "mlp."),
};

static const struct family_row llama_bias[] = {
	LLAMA_ENDS,
	NORM(LAYER "input_layernorm"), NORM(LAYER "post_attention_layernorm"),
	QKV(LAYER "self_attn."), QKV_BIAS(LAYER "self_attn."),
	{ LAYER "self_attn.o_proj.weight", "H Q", "", .share = COLUMNS },
	{ LAYER "self_attn.o_proj.bias", "H", .vllm = "" },
	MLP(LAYER "mlp."),
	{ LAYER "mlp.gate_proj.bias", "I", LAYER "mlp.gate_up_proj.bias", .share = ROWS },
	{ LAYER "mlp.up_proj.bias", "I", LAYER "mlp.gate_up_proj.bias", .share = ROWS },
	{ LAYER "mlp.down_proj.bias", "H", .vllm = "" },
};

#define MISTRAL_ROW(from, shape, to, hf, ...) \
	{ "layers.%u." from ".weight", shape, LAYER to ".weight", LAYER hf ".weight", __VA_ARGS__ }
static const struct family_row mistral[] = {
	{ "tok_embeddings.weight", "V H", "model.embed_tokens.weight", "model.embed_tokens.weight", .share = VOCAB,
		.place = FIRST, .kind = EMBED },
	{ "norm.weight", "H", "model.norm.weight", "model.norm.weight", .place = LAST },
	{ "output.weight", "V H", "lm_head.weight", "lm_head.weight", .share = VOCAB, .place = LAST, .kind = HEAD },
	MISTRAL_ROW("attention_norm", "H", "input_layernorm", "input_layernorm", .share = WHOLE),
	MISTRAL_ROW("ffn_norm", "H", "post_attention_layernorm", "post_attention_layernorm", .share = WHOLE),
	MISTRAL_ROW("attention.wq", "Q H", "self_attn.qkv_proj", "self_attn.q_proj", .share = ROWS, .stored = PAIRS),
	MISTRAL_ROW("attention.wk", "K H", "self_attn.qkv_proj", "self_attn.k_proj", .share = KV_ROWS, .stored = PAIRS),
	MISTRAL_ROW("attention.wv", "K H", "self_attn.qkv_proj", "self_attn.v_proj", .share = KV_ROWS),
	MISTRAL_ROW("attention.wo", "H Q", "self_attn.o_proj", "self_attn.o_proj", .share = COLUMNS),
	MISTRAL_ROW("feed_forward.w1", "I H", "mlp.gate_up_proj", "mlp.gate_proj", .share = ROWS),
	MISTRAL_ROW("feed_forward.w3", "I H", "mlp.gate_up_proj", "mlp.up_proj", .share = ROWS),
	MISTRAL_ROW("feed_forward.w2", "H I", "mlp.down_proj", "mlp.down_proj", .share = COLUMNS),
};

static const struct family_row qwen2[] = {
	LLAMA_ENDS,
	NORM(LAYER "input_layernorm"), NORM(LAYER "post_attention_layernorm"),
	QKV(LAYER "self_attn."), QKV_BIAS(LAYER "self_attn."),
	{ LAYER "self_attn.o_proj.weight", "H Q", "", .share = COLUMNS },
	MLP(LAYER "mlp."),
};

static const struct family_row qwen3[] = {
	LLAMA_ENDS,
	NORM(LAYER "input_layernorm"), NORM(LAYER "post_attention_layernorm"),
	QKV(LAYER "self_attn."),
	{ LAYER "self_attn.q_norm.weight", "D", .vllm = "" }, { LAYER "self_attn.k_norm.weight", "D", .vllm = "" },
	{ LAYER "self_attn.o_proj.weight", "H Q", "", .share = COLUMNS },
	MLP(LAYER "mlp."),
};

static const struct family_row phi3[] = {
	LLAMA_ENDS,
	NORM(LAYER "input_layernorm"), NORM(LAYER "post_attention_layernorm"),
	{ LAYER "self_attn.qkv_proj.weight", "T H", "", .share = QKV_ROWS },
	{ LAYER "self_attn.o_proj.weight", "H Q", "", .share = COLUMNS },
	{ LAYER "mlp.gate_up_proj.weight", "G H", "", .share = HALVES },
	{ LAYER "mlp.down_proj.weight", "H I", "", .share = COLUMNS },
};

static const struct family_row gemma2[] = {
	{ "model.embed_tokens.weight", "V H", "", .share = VOCAB, .kind = EMBED },
	NORM("model.norm"),
	GEMMA_NORMS(LAYER), QKV(LAYER "self_attn."),
	{ LAYER "self_attn.o_proj.weight", "H Q", "", .share = COLUMNS },
	MLP(LAYER "mlp."),
};

static const struct family_row gemma3[] = {
	GEMMA_ENDS("model.", "lm_head.weight"),
	GEMMA_NORMS(LAYER), QKV(LAYER "self_attn."),
	{ LAYER "self_attn.q_norm.weight", "D", .vllm = "" }, { LAYER "self_attn.k_norm.weight", "D", .vllm = "" },
	{ LAYER "self_attn.o_proj.weight", "H Q", "", .share = COLUMNS },
	MLP(LAYER "mlp."),
};

#define TOWER "vision_tower.vision_model."
#define TOWER_LAYER TOWER "encoder.layers.%u."
#define TOWER_QKV(x) \
	{ TOWER_LAYER "self_attn." x "_proj.weight", "32 32", TOWER_LAYER "self_attn.qkv_proj.weight", \
		.share = ROWS, .kind = VISION }, \
	{ TOWER_LAYER "self_attn." x "_proj.bias", "32", TOWER_LAYER "self_attn.qkv_proj.bias", .share = ROWS, \
		.kind = VISION }
#define TOWER_NORM(x) { x ".weight", "32", "", .kind = VISION }, { x ".bias", "32", "", .kind = VISION }
#define WORDS "language_model.model.layers.%u."
static const struct family_row multimodal[] = {
	{ TOWER "embeddings.patch_embedding.weight", "32 3 2 2", "", .kind = VISION },
	{ TOWER "embeddings.patch_embedding.bias", "32", "", .kind = VISION },
	{ TOWER "embeddings.position_embedding.weight", "9 32", "", .kind = VISION },
	TOWER_NORM(TOWER "post_layernorm"), TOWER_NORM(TOWER_LAYER "layer_norm1"),
		TOWER_NORM(TOWER_LAYER "layer_norm2"),
	TOWER_QKV("q"), TOWER_QKV("k"), TOWER_QKV("v"),
	{ TOWER_LAYER "self_attn.out_proj.weight", "32 32", "", .share = COLUMNS, .kind = VISION },
	{ TOWER_LAYER "self_attn.out_proj.bias", "32", "", .kind = VISION },
	{ TOWER_LAYER "mlp.fc1.weight", "24 32", "", .share = ROWS, .kind = VISION },
	{ TOWER_LAYER "mlp.fc1.bias", "24", "", .share = ROWS, .kind = VISION },
	{ TOWER_LAYER "mlp.fc2.weight", "32 24", "", .share = COLUMNS, .kind = VISION },
	{ TOWER_LAYER "mlp.fc2.bias", "32", "", .kind = VISION },
	{ "multi_modal_projector.mm_input_projection_weight", "32 H", "", .kind = VISION },
	{ "multi_modal_projector.mm_soft_emb_norm.weight", "32", "", .kind = VISION },
	GEMMA_ENDS("language_model.model.", "language_model.lm_head.weight"),
	GEMMA_NORMS(WORDS), QKV(WORDS "self_attn."),
	{ WORDS "self_attn.q_norm.weight", "D", .vllm = "" }, { WORDS "self_attn.k_norm.weight", "D", .vllm = "" },
	{ WORDS "self_attn.o_proj.weight", "H Q", "", .share = COLUMNS },
	MLP(WORDS "mlp."),
};

#define BLOCK "transformer.h.%u."
static const struct family_row gpt2[] = {
	{ "transformer.wte.weight", "V H", "", .share = VOCAB, .kind = EMBED },
	{ "transformer.wpe.weight", "P H", .vllm = "" },
	{ "lm_head.weight", "V H", "", .share = VOCAB, .kind = HEAD },
	NORM_BIAS("transformer.ln_f"), NORM_BIAS(BLOCK "ln_1"), NORM_BIAS(BLOCK "ln_2"),
	{ BLOCK "attn.bias", "1 1 5 5", NULL, .dtype = "BOOL" },
	{ BLOCK "attn.c_attn.weight", "H T", "", .share = QKV_ROWS, .stored = TURNED },
	{ BLOCK "attn.c_attn.bias", "T", "", .share = QKV_ROWS },
	{ BLOCK "attn.c_proj.weight", "Q H", "", .share = COLUMNS, .stored = TURNED },
	{ BLOCK "attn.c_proj.bias", "H", .vllm = "" },
	{ BLOCK "mlp.c_fc.weight", "H I", "", .share = ROWS, .stored = TURNED },
	{ BLOCK "mlp.c_fc.bias", "I", "", .share = ROWS },
	{ BLOCK "mlp.c_proj.weight", "I H", "", .share = COLUMNS, .stored = TURNED },
	{ BLOCK "mlp.c_proj.bias", "H", .vllm = "" },
};

#define OPT_LAYER "model.decoder.layers.%u."
static const struct family_row opt[] = {
	{ "model.decoder.embed_tokens.weight", "V 24", "", .share = VOCAB, .kind = EMBED },
	{ "model.decoder.embed_positions.weight", "P H", .vllm = "" },
	{ "model.decoder.project_in.weight", "H 24", .vllm = "" },
	{ "model.decoder.project_out.weight", "24 H", .vllm = "" },
	{ "lm_head.weight", "V 24", "", .share = VOCAB, .kind = HEAD },
	NORM_BIAS("model.decoder.final_layer_norm"),
	NORM_BIAS(OPT_LAYER "self_attn_layer_norm"), NORM_BIAS(OPT_LAYER "final_layer_norm"),
	QKV(OPT_LAYER "self_attn."), QKV_BIAS(OPT_LAYER "self_attn."),
	{ OPT_LAYER "self_attn.out_proj.weight", "H Q", "", .share = COLUMNS },
	{ OPT_LAYER "self_attn.out_proj.bias", "H", .vllm = "" },
	{ OPT_LAYER "fc1.weight", "I H", "", .share = ROWS }, { OPT_LAYER "fc1.bias", "I", "", .share = ROWS },
	{ OPT_LAYER "fc2.weight", "H I", "", .share = COLUMNS }, { OPT_LAYER "fc2.bias", "H", .vllm = "" },
};

#define FALCON_ENDS                                                                \
	{ "transformer.word_embeddings.weight", "V H", "", .share = VOCAB, .kind = EMBED }, \
	{ "lm_head.weight", "V H", "", .share = VOCAB, .kind = HEAD },              \
	NORM_BIAS("transformer.ln_f")
#define FALCON_MATRICES                                                                                    \
	{ BLOCK "self_attention.query_key_value.weight", "T H", "", .share = QKV_ROWS, .stored = GROUPS }, \
	{ BLOCK "self_attention.dense.weight", "H Q", "", .share = COLUMNS },                              \
	{ BLOCK "mlp.dense_h_to_4h.weight", "I H", "", .share = ROWS },                                    \
	{ BLOCK "mlp.dense_4h_to_h.weight", "H I", "", .share = COLUMNS }
static const struct family_row falcon_new[] = {
	FALCON_ENDS, NORM_BIAS(BLOCK "ln_attn"), NORM_BIAS(BLOCK "ln_mlp"), FALCON_MATRICES,
};
static const struct family_row falcon_7b[] = {
	FALCON_ENDS, NORM_BIAS(BLOCK "input_layernorm"), FALCON_MATRICES,
};
static const struct family_row falcon_rw[] = {
	FALCON_ENDS, NORM_BIAS(BLOCK "input_layernorm"), NORM_BIAS(BLOCK "post_attention_layernorm"), FALCON_MATRICES,
	{ BLOCK "self_attention.query_key_value.bias", "T", "", .share = QKV_ROWS, .stored = GROUPS },
	{ BLOCK "self_attention.dense.bias", "H", .vllm = "" },
	{ BLOCK "mlp.dense_h_to_4h.bias", "I", "", .share = ROWS }, { BLOCK "mlp.dense_4h_to_h.bias", "H", .vllm = "" },
};

#define BERT "encoder.layer.%u."
#define BERT_QKV(x) \
	{ BERT "attention.self." x ".weight", "H H", "model." BERT "attention.self.qkv_proj.weight", .share = ROWS }, \
	{ BERT "attention.self." x ".bias", "H", "model." BERT "attention.self.qkv_proj.bias", .share = ROWS }
#define BERT_ROW(name, shape, ...) { name, shape, "model." name, __VA_ARGS__ }
#define BERT_NORM(name) BERT_ROW(name ".weight", "H", .share = WHOLE), BERT_ROW(name ".bias", "H", .share = WHOLE)
static const struct family_row bert[] = {
	BERT_ROW("embeddings.position_ids", "1 P", .dtype = "I64"),
	BERT_ROW("embeddings.word_embeddings.weight", "V H", .share = VOCAB, .kind = EMBED),
	BERT_ROW("embeddings.position_embeddings.weight", "P H", .share = PADDED),
	BERT_ROW("embeddings.token_type_embeddings.weight", "2 H", .share = PADDED),
	BERT_NORM("embeddings.LayerNorm"), BERT_NORM(BERT "attention.output.LayerNorm"),
		BERT_NORM(BERT "output.LayerNorm"),
	BERT_QKV("query"), BERT_QKV("key"), BERT_QKV("value"),
	BERT_ROW(BERT "attention.output.dense.weight", "H H", .share = COLUMNS),
		BERT_ROW(BERT "attention.output.dense.bias", "H", .share = WHOLE),
	BERT_ROW(BERT "intermediate.dense.weight", "I H", .share = ROWS), BERT_ROW(BERT "intermediate.dense.bias",
		"I", .share = ROWS),
	BERT_ROW(BERT "output.dense.weight", "H I", .share = COLUMNS), BERT_ROW(BERT "output.dense.bias", "H",
		.share = WHOLE),
	{ "pooler.dense.weight", "H H", .vllm = NULL }, { "pooler.dense.bias", "H", .vllm = NULL },
};

#define SPARSE_ROW(name, shape, vllm, ...) { name, shape, vllm, .layers = SPARSE, __VA_ARGS__ }
#define EXPERTS(p, gate, up, down)                                                                                 \
	{ p "%e." gate ".weight", "J H", p "routed_experts.w13_weight", .share = ROWS, .layers = SPARSE },         \
	{ p "%e." up ".weight", "J H", p "routed_experts.w13_weight", .share = ROWS, .layers = SPARSE },           \
	{ p "%e." down ".weight", "H J", p "routed_experts.w2_weight", .share = COLUMNS, .layers = SPARSE }
#define DENSE_MLP                                                                                                  \
	{ LAYER "mlp.gate_proj.weight", "I H", LAYER "mlp.gate_up_proj.weight", .share = ROWS, .layers = DENSE },  \
	{ LAYER "mlp.up_proj.weight", "I H", LAYER "mlp.gate_up_proj.weight", .share = ROWS, .layers = DENSE },    \
	{ LAYER "mlp.down_proj.weight", "H I", "", .share = COLUMNS, .layers = DENSE }
#define SHARED "mlp.experts._shared_experts._layer."
#define SHARED_EXPERTS                                                                                             \
	SPARSE_ROW(LAYER "mlp.shared_experts.gate_proj.weight", "S H", LAYER SHARED "gate_up_proj.weight",         \
		.share = ROWS),                                                                                    \
	SPARSE_ROW(LAYER "mlp.shared_experts.up_proj.weight", "S H", LAYER SHARED "gate_up_proj.weight",           \
		.share = ROWS),                                                                                    \
	SPARSE_ROW(LAYER "mlp.shared_experts.down_proj.weight", "H S", LAYER SHARED "down_proj.weight",            \
		.share = COLUMNS)
#define EVERYWHERE_ENDS                                                                                            \
	{ "model.embed_tokens.weight", "V H", "", .share = VOCAB, .kind = EMBED }, NORM("model.norm"),             \
	{ "lm_head.weight", "V H", "", .share = VOCAB, .kind = HEAD }

static const struct family_row mixtral[] = {
	EVERYWHERE_ENDS,
	NORM(LAYER "input_layernorm"), NORM(LAYER "post_attention_layernorm"), QKV(LAYER "self_attn."),
	{ LAYER "self_attn.o_proj.weight", "H Q", "", .share = COLUMNS },
	{ LAYER "block_sparse_moe.gate.weight", "E H", .vllm = "" },
	EXPERTS(LAYER "block_sparse_moe.experts.", "w1", "w3", "w2"),
};

static const struct family_row qwen3_moe[] = {
	EVERYWHERE_ENDS,
	NORM(LAYER "input_layernorm"), NORM(LAYER "post_attention_layernorm"), QKV(LAYER "self_attn."),
	{ LAYER "self_attn.q_norm.weight", "D", .vllm = "" }, { LAYER "self_attn.k_norm.weight", "D", .vllm = "" },
	{ LAYER "self_attn.o_proj.weight", "H Q", "", .share = COLUMNS },
	DENSE_MLP,
	SPARSE_ROW(LAYER "mlp.gate.weight", "E H", LAYER "mlp.experts.gate.weight", .share = WHOLE),
	EXPERTS(LAYER "mlp.experts.", "gate_proj", "up_proj", "down_proj"),
};

#define MLA_NAME(x) LAYER "self_attn." x ".weight"
#define MLA_HELD(x) LAYER "self_attn.mla_attn." x ".weight"
#define MLA_ENDS                                                                                                   \
	{ MLA_NAME("kv_a_layernorm"), "C", .vllm = "" },                                                           \
	{ MLA_NAME("kv_b_proj"), "W C", "", .share = ROWS },                                                       \
	{ MLA_NAME("o_proj"), "H O", MLA_HELD("o_proj"), .share = COLUMNS }
static const struct family_row deepseek[] = {
	LLAMA_ENDS,
	NORM(LAYER "input_layernorm"), NORM(LAYER "post_attention_layernorm"),
	{ MLA_NAME("q_a_proj"), "A H", MLA_NAME("fused_qkv_a_proj"), .share = WHOLE },
	{ MLA_NAME("kv_a_proj_with_mqa"), "R H", MLA_NAME("fused_qkv_a_proj"), .share = WHOLE },
	{ MLA_NAME("q_a_layernorm"), "A", MLA_HELD("q_a_layernorm"), .share = WHOLE },
	{ MLA_NAME("q_b_proj"), "U A", MLA_HELD("q_b_proj"), .share = ROWS },
	MLA_ENDS, DENSE_MLP, SHARED_EXPERTS,
	SPARSE_ROW(LAYER "mlp.gate.weight", "E H", LAYER "mlp.experts.gate.weight", .share = WHOLE),
	SPARSE_ROW(LAYER "mlp.gate.e_score_correction_bias", "E", LAYER "mlp.experts.gate.e_score_correction_bias",
		.share = WHOLE, .in_f32 = true),
	EXPERTS(LAYER "mlp.experts.", "gate_proj", "up_proj", "down_proj"),
};

static const struct family_row deepseek_lite[] = {
	LLAMA_ENDS,
	NORM(LAYER "input_layernorm"), NORM(LAYER "post_attention_layernorm"),
	{ MLA_NAME("kv_a_proj_with_mqa"), "R H", .vllm = "" },
	{ MLA_NAME("q_proj"), "U H", MLA_HELD("q_proj"), .share = ROWS },
	MLA_ENDS, DENSE_MLP, SHARED_EXPERTS,
	SPARSE_ROW(LAYER "mlp.gate.weight", "E H", LAYER "mlp.experts.gate.weight", .share = WHOLE),
	EXPERTS(LAYER "mlp.experts.", "gate_proj", "up_proj", "down_proj"),
};

static const struct family_row glm4_moe[] = {
	LLAMA_ENDS,
	NORM(LAYER "input_layernorm"), NORM(LAYER "post_attention_layernorm"),
	QKV(LAYER "self_attn."), QKV_BIAS(LAYER "self_attn."),
	{ LAYER "self_attn.q_norm.weight", "D", .vllm = "" }, { LAYER "self_attn.k_norm.weight", "D", .vllm = "" },
	{ LAYER "self_attn.o_proj.weight", "H Q", "", .share = COLUMNS },
	DENSE_MLP, SHARED_EXPERTS,
	SPARSE_ROW(LAYER "mlp.gate.weight", "E H", "", .share = WHOLE, .in_f32 = true),
	SPARSE_ROW(LAYER "mlp.gate.e_score_correction_bias", "E",
		LAYER "mlp.experts.routed_experts.e_score_correction_bias", .share = WHOLE, .in_f32 = true),
	EXPERTS(LAYER "mlp.experts.", "gate_proj", "up_proj", "down_proj"),
};

static const struct family_row minimax_m2[] = {
	LLAMA_ENDS,
	NORM(LAYER "input_layernorm"), NORM(LAYER "post_attention_layernorm"), QKV(LAYER "self_attn."),
	{ LAYER "self_attn.q_norm.weight", "Q", "", .share = ROWS },
	{ LAYER "self_attn.k_norm.weight", "K", "", .share = KV_ROWS },
	{ LAYER "self_attn.o_proj.weight", "H Q", "", .share = COLUMNS },
	{ LAYER "block_sparse_moe.gate.weight", "E H", "", .in_f32 = true },
	{ LAYER "block_sparse_moe.e_score_correction_bias", "E", "", .in_f32 = true },
	EXPERTS(LAYER "block_sparse_moe.experts.", "w1", "w3", "w2"),
};

#define USUAL_BUT_HEADS                                                                                     \
	"\"num_hidden_layers\":$L,\"hidden_size\":$H,\"num_attention_heads\":$N,\"num_key_value_heads\":$M," \
	"\"intermediate_size\":$I,\"vocab_size\":$V"
#define USUAL USUAL_BUT_HEADS ",\"head_dim\":$D"
#define MLA USUAL_BUT_HEADS ",\"n_routed_experts\":$E,\"n_shared_experts\":2,\"moe_intermediate_size\":$J," \
	    "\"first_k_dense_replace\":$B,\"kv_lora_rank\":$C,\"num_nextn_predict_layers\":1"
#define NAMED(architecture) "\"architectures\":[\"" architecture "\"]"

/* To add a family: its rows above and a row here. */
const struct family families[] = {
	{ "llama", NAMED("LlamaForCausalLM") "," USUAL, { 3, 40, 8, 2, 8, 48, 67, 0 }, ROWS_OF(llama),
	  LAYER "self_attn.attn", "lm_head.weight", "model.safetensors", true, true },
	{ "llama-bias", NAMED("LlamaForCausalLM") ",\"attention_bias\":true,\"mlp_bias\":true," USUAL, { 2, 24, 8,
		8, 4, 40, 72, 0 },
	  ROWS_OF(llama_bias), LAYER "self_attn.attn", "lm_head.weight", "model.safetensors", true, true },
	{ "mistral", NAMED("MistralForCausalLM") "," USUAL, { 2, 40, 8, 2, 6, 48, 130, 0 }, ROWS_OF(mistral),
	  LAYER "self_attn.attn", "lm_head.weight", "consolidated.safetensors", true, true },
	{ "qwen2", NAMED("Qwen2ForCausalLM") "," USUAL, { 2, 40, 8, 4, 8, 48, 67, 0 }, ROWS_OF(qwen2),
	  LAYER "self_attn.attn", "lm_head.weight", "model.safetensors", true, true },
	{ "qwen3", NAMED("Qwen3ForCausalLM") "," USUAL, { 2, 40, 8, 1, 8, 48, 64, 0 }, ROWS_OF(qwen3),
	  LAYER "self_attn.attn", "lm_head.weight", "model.safetensors", true, true },
	{ "phi3", NAMED("Phi3ForCausalLM") "," USUAL, { 2, 40, 8, 2, 8, 24, 67, 0 }, ROWS_OF(phi3),
	  LAYER "self_attn.attn", "lm_head.weight", "model.safetensors", true, true },
	{ "gemma2", NAMED("Gemma2ForCausalLM") "," USUAL, { 2, 40, 8, 4, 8, 48, 128, 0 }, ROWS_OF(gemma2),
	  LAYER "self_attn.attn", NULL, "model.safetensors", true, true },
	{ "gemma3", NAMED("Gemma3ForCausalLM") "," USUAL, { 2, 40, 8, 2, 8, 48, 67, 0 }, ROWS_OF(gemma3),
	  LAYER "self_attn.attn", "lm_head.weight", "model.safetensors", true, true },
	{ "gemma3-mm", NAMED("Gemma3ForConditionalGeneration") ",\"text_config\":{" USUAL "},"
		"\"vision_config\":{\"num_hidden_layers\":$L,"
	  "\"hidden_size\":32,\"num_attention_heads\":8,\"intermediate_size\":24}", { 2, 40, 8, 2, 8, 48, 66, 0 },
		ROWS_OF(multimodal),
	  WORDS "self_attn.attn", "language_model.lm_head.weight", "model.safetensors", true, true },
	{ "gpt2", NAMED("GPT2LMHeadModel") ",\"n_layer\":$L,\"n_embd\":$H,\"n_head\":$N,\"n_inner\":null,"
		"\"vocab_size\":$V,\"n_positions\":$P",
	  { 2, 40, 8, 8, 5, 160, 67, 12 }, ROWS_OF(gpt2), BLOCK "attn.attn", "lm_head.weight", "model.safetensors",
		false, true },
	{ "opt", NAMED("OPTForCausalLM") ",\"num_hidden_layers\":$L,\"hidden_size\":$H,\"num_attention_heads\":$N,"
		"\"ffn_dim\":$I,"
	  "\"vocab_size\":$V,\"word_embed_proj_dim\":24", { 2, 40, 8, 8, 5, 48, 67, 14 }, ROWS_OF(opt),
		OPT_LAYER "self_attn.attn",
	  "lm_head.weight", "model.safetensors", false, true },
	{ "falcon-new", NAMED("FalconForCausalLM") ",\"new_decoder_architecture\":true,\"num_hidden_layers\":$L,"
		"\"hidden_size\":$H,"
	  "\"num_attention_heads\":$N,\"num_kv_heads\":$M,\"vocab_size\":$V", { 2, 64, 16, 4, 4, 256, 67, 0 },
		ROWS_OF(falcon_new),
	  BLOCK "self_attention.attn", "lm_head.weight", "model.safetensors", false, true },
	{ "falcon-7b", NAMED("FalconForCausalLM") ",\"multi_query\":true,\"n_layer\":$L,\"hidden_size\":$H,"
		"\"n_head\":$N,\"vocab_size\":$V",
	  { 2, 40, 8, 1, 5, 160, 67, 0 }, ROWS_OF(falcon_7b), BLOCK "self_attention.attn", "lm_head.weight",
		"model.safetensors", false, true },
	{ "falcon-rw", NAMED("FalconForCausalLM") ",\"multi_query\":false,\"parallel_attn\":false,\"bias\":true,"
		"\"alibi\":true,"
	  "\"num_hidden_layers\":$L,\"hidden_size\":$H,\"num_attention_heads\":$N,\"vocab_size\":$V", { 2, 40, 8, 8,
		5, 160, 67, 0 },
	  ROWS_OF(falcon_rw), BLOCK "self_attention.attn", "lm_head.weight", "model.safetensors", false, true },
	{ "bert", NAMED("BertModel") ",\"num_hidden_layers\":$L,\"hidden_size\":$H,\"num_attention_heads\":$N,"
		"\"intermediate_size\":$I,"
	  "\"vocab_size\":$V,\"max_position_embeddings\":$P", { 2, 40, 8, 8, 5, 48, 67, 70 }, ROWS_OF(bert),
	  "model." BERT "attention.self.attn", NULL, "model.safetensors", false, false },
	{ "mixtral", NAMED("MixtralForCausalLM") "," USUAL ",\"num_local_experts\":$E", { 2, 40, 8, 2, 8, 16, 67, 0 },
	  ROWS_OF(mixtral), LAYER "self_attn.attn", "lm_head.weight", "model.safetensors", true, true,
	  .more = { .E = 5, .J = 16 } },
	{ "qwen3-moe", NAMED("Qwen3MoeForCausalLM") "," USUAL ",\"num_experts\":$E,\"moe_intermediate_size\":$J,"
		"\"mlp_only_layers\":[0]", { 3, 40, 8, 4, 8, 48, 67, 0 },
	  ROWS_OF(qwen3_moe), LAYER "self_attn.attn", "lm_head.weight", "model.safetensors", true, true,
	  .more = { .E = 9, .J = 24, .B = 1 } },
	{ "deepseek", NAMED("DeepseekV3ForCausalLM") "," MLA ",\"q_lora_rank\":$A,\"topk_method\":\"noaux_tc\"",
	  { 2, 40, 8, 8, 5, 48, 67, 0 }, ROWS_OF(deepseek), LAYER "self_attn.mla_attn.mla_attn", "lm_head.weight",
		"model.safetensors", true, true,
	  .untied = true, .more = { .E = 4, .J = 16, .S = 32, .B = 1, .A = 12, .C = 20, .rotary = 4, .nope = 6, .v = 7 } },
	{ "deepseek-lite", NAMED("DeepseekV2ForCausalLM") "," MLA ",\"q_lora_rank\":null,\"topk_method\":\"greedy\"",
	  { 2, 40, 8, 8, 5, 48, 67, 0 }, ROWS_OF(deepseek_lite), LAYER "self_attn.mla_attn.mla_attn", "lm_head.weight",
		"model.safetensors", true, true,
	  .untied = true, .more = { .E = 4, .J = 8, .S = 16, .B = 1, .C = 12, .rotary = 4, .nope = 6, .v = 8 } },
	{ "glm4-moe", NAMED("Glm4MoeForCausalLM") "," USUAL ",\"n_routed_experts\":$E,\"n_shared_experts\":1,"
		"\"moe_intermediate_size\":$J,\"first_k_dense_replace\":$B,\"use_qk_norm\":true,\"attention_bias\":true",
	  { 3, 40, 8, 2, 8, 48, 67, 0 }, ROWS_OF(glm4_moe), LAYER "self_attn.attn", "lm_head.weight",
		"model.safetensors", true, true,
	  .untied = true, .more = { .E = 5, .J = 16, .S = 16, .B = 1 } },
	{ "minimax-m2", NAMED("MiniMaxM2ForCausalLM") "," USUAL ",\"num_local_experts\":$E,\"use_routing_bias\":true",
	  { 2, 40, 8, 2, 8, 16, 67, 0 }, ROWS_OF(minimax_m2), LAYER "self_attn.attn", "lm_head.weight",
		"model.safetensors", true, true,
	  .untied = true, .more = { .E = 8, .J = 16 } },
};
/* clang-format on */
const unsigned n_families = LEN(families);

const struct family *family_find(const char *name)
{
	for (unsigned i = 0; i < n_families; i++) {
		if (strcmp(families[i].name, name) == 0)
			return &families[i];
	}
	cr_assert_fail("there is no family '%s'", name);
	return NULL;
}

static uint64_t size_of(const struct sizes *s, const struct more_sizes *m, char letter)
{
	const uint64_t sizes[] = {
		['L' - 'A'] = s->L,
		['H' - 'A'] = s->H,
		['N' - 'A'] = s->N,
		['M' - 'A'] = s->M,
		['D' - 'A'] = s->D,
		['I' - 'A'] = s->I,
		['V' - 'A'] = s->V,
		['P' - 'A'] = s->P,
		['Q' - 'A'] = (uint64_t)s->N * s->D,
		['K' - 'A'] = (uint64_t)s->M * s->D,
		['T' - 'A'] = (uint64_t)(s->N + 2 * s->M) * s->D,
		['G' - 'A'] = 2u * s->I,
		['E' - 'A'] = m->E,
		['J' - 'A'] = m->J,
		['S' - 'A'] = m->S,
		['B' - 'A'] = m->B,
		['A' - 'A'] = m->A,
		['C' - 'A'] = m->C,
		['R' - 'A'] = m->C + m->rotary,
		['U' - 'A'] = (uint64_t)s->N * (m->nope + m->rotary),
		['W' - 'A'] = (uint64_t)s->N * (m->nope + m->v),
		['O' - 'A'] = (uint64_t)s->N * m->v,
	};

	cr_assert(letter >= 'A' && letter - 'A' < (int)LEN(sizes), "'%c' is no size", letter);
	return sizes[letter - 'A'];
}

/* Text with letters replaced by sizes: all capital ones, or those after a '$'. */
static void print_sizes(FILE *out, const struct sizes *s, const struct more_sizes *m, const char *text, bool marked)
{
	for (; *text; text++) {
		if (marked && *text == '$')
			fprintf(out, "%" PRIu64, size_of(s, m, *++text));
		else if (!marked && *text >= 'A' && *text <= 'Z')
			fprintf(out, "%" PRIu64, size_of(s, m, *text));
		else
			fputc(*text, out);
	}
}

const char *family_expert_name(const char *name, unsigned layer, unsigned expert, char out[200])
{
	size_t len = 0;

	for (; *name; name++) {
		if (name[0] == '%')
			len += (size_t)snprintf(out + len, 200 - len, "%u", *++name == 'u' ? layer : expert);
		else
			out[len++] = *name;
	}
	out[len] = '\0';
	return out;
}

const char *family_name(const char *name, unsigned layer, char out[200])
{
	return family_expert_name(name, layer, 0, out);
}

unsigned family_experts(const struct family *f, const struct family_row *row)
{
	return strstr(row->name, "%e") ? f->more.E : 1;
}

bool family_has(const struct family *f, const struct family_row *row, unsigned layer)
{
	return row->layers == ALL || (layer < f->more.B) == (row->layers == DENSE);
}

unsigned family_layers(const struct family *f, const struct family_row *row)
{
	return strstr(row->name, "%u") ? f->sizes.L : 1;
}

static void begin(const struct family *f, const struct sizes *s, const char *torch_dtype, bool tied,
		  const char *members)
{
	size_t len;
	char *text;
	FILE *out = open_memstream(&text, &len);

	fputc('{', out);
	print_sizes(out, s, &f->more, f->config, true);
	fprintf(out, ",\"tie_word_embeddings\":%s", tied ? "true" : "false");
	if (torch_dtype)
		fprintf(out, ",\"torch_dtype\":\"%s\"", torch_dtype);
	fprintf(out, "%s}", members);
	fclose(out);
	checkpoint_begin(text);
	free(text);
}

static void add_row(const struct family *f, const struct family_row *row, const struct sizes *s, const char *dtype)
{
	unsigned n = strstr(row->name, "%u") ? s->L : 1;
	char shape[64], name[200];

	FILE *out = fmemopen(shape, sizeof(shape), "w");
	print_sizes(out, s, &f->more, row->shape, false);
	fclose(out);
	for (unsigned l = 0; l < n; l++) {
		for (unsigned e = 0; family_has(f, row, l) && e < family_experts(f, row); e++)
			checkpoint_add(row->dtype ? row->dtype : dtype, shape, "%s",
				       family_expert_name(row->name, l, e, name));
	}
}

void family_build(const struct family *f, const struct sizes *s, const char *dtype, const char *torch_dtype, bool tied,
		  const char *members)
{
	begin(f, s, torch_dtype, tied, members);
	for (unsigned r = 0; r < f->n_rows; r++) {
		if (!tied || f->rows[r].kind != HEAD)
			add_row(f, &f->rows[r], s, dtype);
	}
}

struct sl_model *family_open(const struct family *f, const char *dtype, const char *torch_dtype, bool tied)
{
	family_build(f, &f->sizes, dtype, torch_dtype, tied, "");
	checkpoint_write_file(f->file);
	return checkpoint_open();
}
