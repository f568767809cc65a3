/*
 * scheme.c - the tables of quantisation schemes (vLLM: quantization/…, create_weights of each method, v0.32), and finding the
 * one that a checkpoint has.
 */
#include "slicer/scheme.h"

#include <errno.h>
#include <fcntl.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SIZE_MAX_SAID = 1 << 30 };

/* clang-format off */

/* What FP8 parameters hold until they are loaded: the lowest F32. */
#define SENTINEL (-3.4028234663852886e38f)

#define WEIGHT_F8     { ".weight", "weight", SL_MATRIX, SL_REQUIRED, SL_UNIT_1, SL_UNIT_1, false, SL_AS_STORED, SL_F8_E4M3, 0 }
#define SCALE_OF(n, need) { "." n, n, SL_SCALAR, need, SL_UNIT_ALL, SL_UNIT_ALL, false, SL_AS_F32, SL_FLOAT, 0 }

const struct sl_storage sl_plain = {
	.name = "plain", .components = { { ".weight", "weight", SL_MATRIX, SL_REQUIRED, SL_UNIT_1, SL_UNIT_1, false, SL_AS_MODEL, SL_FLOAT, 0 } }, .n_components = 1,
};

static const struct sl_storage fp8_block = {
	.name = "FP8 blocks", .components = {
		WEIGHT_F8,
		{ ".weight_scale_inv", "weight_scale_inv", SL_MATRIX, SL_REQUIRED, SL_UNIT_BLOCK, SL_UNIT_BLOCK, false, SL_AS_F32, SL_FLOAT, 0 },
	}, .n_components = 2,
};
static const struct sl_storage fp8_block_e8m0 = {
	.name = "FP8 blocks, E8M0 scales", .components = {
		WEIGHT_F8,
		{ ".scale", "weight_scale_inv", SL_MATRIX, SL_REQUIRED, SL_UNIT_BLOCK, SL_UNIT_BLOCK, false, SL_AS_STORED, SL_F8_E8M0, 0 },
	}, .n_components = 2,
};
static const struct sl_storage fp4_experts = {
	.name = "FP4 in bytes, E8M0 scales", .components = {
		{ ".weight", "weight", SL_MATRIX, SL_REQUIRED, SL_UNIT_1, SL_UNIT_PACK, false, SL_AS_U8, SL_I8, 0 },
		{ ".scale", "weight_scale", SL_MATRIX, SL_REQUIRED, SL_UNIT_1, SL_UNIT_GROUP, false, SL_AS_U8, SL_F8_E8M0, 0 },
	}, .n_components = 2,
};
static const struct sl_storage fp8_tensor = {
	.name = "FP8 per tensor", .components = { WEIGHT_F8, SCALE_OF("weight_scale", SL_REQUIRED), SCALE_OF("input_scale", SL_IF_THERE) }, .n_components = 3,
};
static const struct sl_storage fp8_channel = {
	.name = "FP8 per channel", .components = {
		WEIGHT_F8,
		{ ".weight_scale", "weight_scale", SL_MATRIX, SL_REQUIRED, SL_UNIT_1, SL_UNIT_ALL, false, SL_AS_F32, SL_FLOAT, 0 },
	}, .n_components = 2,
};
static const struct sl_storage fbgemm = {
	.name = "FP8 per channel, input bound", .components = {
		WEIGHT_F8,
		{ ".weight_scale", "weight_scale", SL_MATRIX, SL_FILLED, SL_UNIT_1, SL_UNIT_ALL, false, SL_AS_F32, SL_FLOAT, SENTINEL },
		{ ".input_scale_ub", "input_scale_ub", SL_SINGLE, SL_FILLED, SL_UNIT_ALL, SL_UNIT_ALL, false, SL_AS_F32, SL_FLOAT, 0 },
	}, .n_components = 3,
};
static const struct sl_storage w4a16 = {
	.name = "packed integers, groups", .components = {
		{ ".weight_packed", "weight_packed", SL_MATRIX, SL_REQUIRED, SL_UNIT_1, SL_UNIT_PACK, false, SL_AS_STORED, SL_I32, 0 },
		{ ".weight_scale", "weight_scale", SL_MATRIX, SL_REQUIRED, SL_UNIT_1, SL_UNIT_GROUP, false, SL_AS_MODEL, SL_FLOAT, 0 },
		{ ".weight_zero_point", "weight_zero_point", SL_MATRIX, SL_IF_THERE, SL_UNIT_PACK, SL_UNIT_GROUP, false, SL_AS_STORED, SL_I32, 0 },
		{ ".weight_shape", "weight_shape", SL_LAST, SL_REQUIRED, SL_UNIT_ALL, SL_UNIT_ALL, false, SL_AS_STORED, SL_INTEGER, 0 },
	}, .n_components = 4,
};
static const struct sl_storage nvfp4 = {
	.name = "NVFP4", .components = {
		{ ".weight_packed", "weight_packed", SL_MATRIX, SL_REQUIRED, SL_UNIT_1, SL_UNIT_PACK, false, SL_AS_STORED, SL_U8, 0 },
		{ ".weight_scale", "weight_scale", SL_MATRIX, SL_REQUIRED, SL_UNIT_1, SL_UNIT_GROUP, false, SL_AS_STORED, SL_F8_E4M3, 0 },
		SCALE_OF("weight_global_scale", SL_REQUIRED),
		SCALE_OF("input_global_scale", SL_IF_THERE),
	}, .n_components = 4, .group = 16,
};
static const struct sl_storage mxfp4_packed = {
	.name = "MXFP4", .components = {
		{ ".weight_packed", "weight", SL_MATRIX, SL_REQUIRED, SL_UNIT_1, SL_UNIT_PACK, false, SL_AS_STORED, SL_U8, 0 },
		{ ".weight_scale", "weight_scale", SL_MATRIX, SL_REQUIRED, SL_UNIT_1, SL_UNIT_GROUP, false, SL_AS_STORED, SL_U8, 0 },
	}, .n_components = 2, .group = 32, .padding = { { 256, 256 }, { 256, 256 }, { 256, 256 }, { 256, 256 }, { 256, 256 } }, /* Marlin everywhere */
};
static const struct sl_storage nvfp4_modelopt = {
	.name = "NVFP4 of ModelOpt", .components = {
		{ ".weight", "weight", SL_MATRIX, SL_REQUIRED, SL_UNIT_1, SL_UNIT_PACK, false, SL_AS_STORED, SL_U8, 0 },
		{ ".weight_scale", "weight_scale", SL_MATRIX, SL_REQUIRED, SL_UNIT_1, SL_UNIT_GROUP, false, SL_AS_STORED, SL_F8_E4M3, 0 },
		SCALE_OF("weight_scale_2", SL_REQUIRED),
		SCALE_OF("input_scale", SL_IF_THERE),
	}, .n_components = 4, .group = 16,
};
static const struct sl_storage mxfp8 = {
	.name = "MXFP8", .components = {
		WEIGHT_F8,
		{ ".weight_scale_inv", "weight_scale", SL_MATRIX, SL_REQUIRED, SL_UNIT_1, SL_UNIT_GROUP, false, SL_AS_STORED, SL_U8, 0 },
	}, .n_components = 2, .group = 32,
};
static const struct sl_storage awq = {
	.name = "AWQ", .components = {
		{ ".qweight", "qweight", SL_MATRIX, SL_REQUIRED, SL_UNIT_PACK, SL_UNIT_1, true, SL_AS_STORED, SL_I32, 0 },
		{ ".qzeros", "qzeros", SL_MATRIX, SL_REQUIRED, SL_UNIT_PACK, SL_UNIT_GROUP, true, SL_AS_STORED, SL_I32, 0 },
		{ ".scales", "scales", SL_MATRIX, SL_REQUIRED, SL_UNIT_1, SL_UNIT_GROUP, true, SL_AS_MODEL, SL_FLOAT, 0 },
	}, .n_components = 3,
};
static const struct sl_storage gptq = {
	.name = "GPTQ", .components = {
		{ ".qweight", "qweight", SL_MATRIX, SL_REQUIRED, SL_UNIT_1, SL_UNIT_PACK, true, SL_AS_STORED, SL_I32, 0 },
		{ ".scales", "scales", SL_MATRIX, SL_REQUIRED, SL_UNIT_1, SL_UNIT_GROUP, true, SL_AS_MODEL, SL_FLOAT, 0 },
		{ ".qzeros", "qzeros", SL_MATRIX, SL_REQUIRED, SL_UNIT_PACK, SL_UNIT_GROUP, true, SL_AS_STORED, SL_I32, 0 },
		{ ".g_idx", "g_idx", SL_INPUTS, SL_DROPPED, SL_UNIT_ALL, SL_UNIT_ALL, false, SL_AS_STORED, SL_I32, 0 },
	}, .n_components = 4,
};
static const struct sl_storage gpt_oss = {
	.name = "MXFP4 blocks of all experts", .components = {
		{ "_blocks", "weight", SL_MATRIX, SL_REQUIRED, SL_UNIT_1, SL_UNIT_PACK, false, SL_AS_STORED, SL_U8, 0 },
		{ "_scales", "weight_scale", SL_MATRIX, SL_REQUIRED, SL_UNIT_1, SL_UNIT_GROUP, false, SL_AS_STORED, SL_U8, 0 },
		{ "_bias", "bias", SL_MATRIX, SL_REQUIRED, SL_UNIT_1, SL_UNIT_ALL, false, SL_AS_MODEL, SL_FLOAT, 0 },
	}, .n_components = 3, .group = 32, .granule = 32, .bias_on_first = true,
	/* Marlin below Hopper, Triton on it, FlashInfer above, AITER on AMD's (mxfp4.py). */
	.padding = {
		[SL_SM80] = { 128, 256 }, [SL_SM89] = { 128, 256 }, [SL_SM90] = { 64, 1 }, [SL_SM100] = { 128, 256 },
		[SL_GFX942] = { 256, 256 },
	},
};

#define STORAGES(...) .storages = (const struct sl_storage *const[]){ __VA_ARGS__, NULL }

/* Names under which quantisers store the scales of the KV cache (vLLM: base_config.py, the cache-scale mapper). */
#define K_SCALES "k_proj.k_scale|k_scale|attn.k_scale|qkv_proj.k_scale|k_cache.scale|k_proj.output_scale|kv_scale"
#define V_SCALES "v_proj.v_scale|v_scale|attn.v_scale|qkv_proj.v_scale|v_cache.scale|v_proj.output_scale|kv_scale"
#define Q_SCALES "q.scale|q_scale|attn.q_scale|q_proj.output_scale"

static const struct sl_cache_scale fp8_cache[] = {
	{ "q_scale",    Q_SCALES,                       true, false, -1 },
	{ "k_scale",    K_SCALES,                       true, false, -1 },
	{ "v_scale",    V_SCALES,                       true, false, -1 },
	{ "prob_scale", "prob_output_scale|prob_scale", true, false, -1 },
};
static const struct sl_cache_scale compressed_cache[] = {
	{ "k_scale",      K_SCALES,                                         false, true, 1 },
	{ "v_scale",      V_SCALES,                                         false, true, 1 },
	{ "q_scale",      Q_SCALES,                                         false, true, 1 },
	{ "k_zero_point", "k_proj.k_zero_point|k_zero_point",               true,  true, 0 },
	{ "v_zero_point", "v_proj.v_zero_point|v_zero_point",               true,  true, 0 },
	{ "q_zero_point", "q_zero_point",                                   true,  true, 0 },
};
static const struct sl_cache_scale fp8_cache_after[] = {
	{ "k_scale", K_SCALES, false, false, 1 },
	{ "v_scale", V_SCALES, false, false, 1 },
};
#define CACHE(table) .cache_scales = table, .n_cache_scales = sizeof(table) / sizeof((table)[0])
#define AFTER(table) .after = table, .n_after = sizeof(table) / sizeof((table)[0])

static const struct sl_scheme none = {
	"none", "BF16, F16, F32", NULL, STORAGES(&sl_plain),
};
static const struct sl_scheme fp8 = {
	"fp8", "FP8, per tensor or in blocks", NULL,
	STORAGES(&fp8_block, &fp8_block_e8m0, &fp4_experts, &fp8_tensor, &sl_plain), CACHE(fp8_cache), AFTER(fp8_cache_after),
};
static const struct sl_scheme fbgemm_fp8 = {
	"fbgemm_fp8", "FP8 per channel (fbgemm)", NULL, STORAGES(&fbgemm, &sl_plain), .convert_unlisted = true,
};
static const struct sl_scheme compressed_tensors = {
	"compressed-tensors", "FP8, W4A16, NVFP4, MXFP4 (llm-compressor)", NULL,
	STORAGES(&w4a16, &nvfp4, &mxfp4_packed, &fp8_channel, &fp8_tensor, &sl_plain), CACHE(compressed_cache),
};
static const struct sl_scheme modelopt = {
	"modelopt", "FP8, NVFP4 (ModelOpt)", NULL,
	STORAGES(&nvfp4_modelopt, &fp8_tensor, &sl_plain), CACHE(fp8_cache), .cache_scales_of_mla = true,
};
static const struct sl_scheme gptq_scheme = { "gptq", "4 and 8 bit (GPTQ)", NULL, STORAGES(&gptq, &sl_plain), .lists_modules = true };
static const struct sl_scheme awq_scheme = { "awq", "4 bit (AWQ)", NULL, STORAGES(&awq, &sl_plain) };
static const struct sl_scheme mxfp4 = { "mxfp4", "MXFP4 experts (gpt-oss)", NULL, STORAGES(&gpt_oss, &sl_plain) };
static const struct sl_scheme mxfp8_scheme = {
	"mxfp8", "MXFP8", NULL, STORAGES(&mxfp8, &sl_plain), CACHE(fp8_cache),
};

#define REFUSED(name, title, why) static const struct sl_scheme name = { #name, title, why, STORAGES(&sl_plain) }
REFUSED(bitsandbytes, "INT8, NF4 (bitsandbytes)", "its packing is no slice of a matrix, and vLLM dropped it");
REFUSED(torchao, "torchao", "its tensors are flattened by torch's own subclasses");
REFUSED(gguf, "GGUF", "it is no safetensors");
REFUSED(qserve, "QServe", "vLLM has no such scheme");
REFUSED(exl2, "EXL2", "its layout belongs to ExLlamaV2 alone");
REFUSED(exl3, "EXL3", "its layout belongs to ExLlamaV3 alone");
REFUSED(hqq, "HQQ", "vLLM dropped it");
REFUSED(aqlm, "AQLM", "vLLM dropped it");
REFUSED(quark, "Quark", "no checkpoint of it has been compared with vLLM yet");

/* To add a scheme: its tables above, and a line here. */
const struct sl_scheme *const sl_schemes[] = {
	&none, &fp8, &fbgemm_fp8, &compressed_tensors, &modelopt, &gptq_scheme, &awq_scheme, &mxfp4, &mxfp8_scheme,
	&bitsandbytes, &torchao, &gguf, &qserve, &exl2, &exl3, &hqq, &aqlm, &quark, NULL,
};
/* clang-format on */

const char *const sl_gpu_names[SL_N_GPUS] = { "sm80", "sm89", "sm90", "sm100", "gfx942" };

int sl_gpu_find(const char *name, size_t len)
{
	for (int i = 0; i < SL_N_GPUS; i++) {
		if (strlen(sl_gpu_names[i]) == len && memcmp(sl_gpu_names[i], name, len) == 0)
			return i;
	}
	return -1;
}

static int by_method(struct sl_quant *quant, const char *method, size_t len, const char *where, struct sl_error *err)
{
	char name[64];

	for (const struct sl_scheme *const *at = sl_schemes + 1; *at; at++) {
		if (strlen((*at)->method) != len || memcmp((*at)->method, method, len) != 0)
			continue;
		quant->scheme = *at;
		return (*at)->refused ? sl_fail(err, EINVAL, "%s: quantisation '%s' (%s) is refused: %s", where,
						(*at)->method, (*at)->title, (*at)->refused)
				      : 0;
	}
	return sl_fail(err, EINVAL, "%s: quantisation '%s' is unknown; `rankfs --list` shows those that work", where,
		       sl_escape(name, sizeof(name), method, len));
}

/* The files in which quantisers leave their own configuration. */
static int by_file(struct sl_quant *quant, int dirfd, struct sl_error *err)
{
	static const struct {
		const char *file, *method;
	} files[] = {
		{ "hf_quant_config.json", "modelopt" },
		{ "quantize_config.json", "gptq" },
		{ "quant_config.json", "awq" },
	};

	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		if (faccessat(dirfd, files[i].file, F_OK, 0) == 0)
			return by_method(quant, files[i].method, strlen(files[i].method), files[i].file, err);
	}
	quant->scheme = sl_schemes[0];
	return 0;
}

static uint32_t find_object(const struct sl_config *config)
{
	const struct sl_json *json = &config->json;
	uint32_t at = sl_json_member(json, 0, "quantization_config");

	if (!at || json->tokens[at].type != SL_JSON_OBJECT)
		at = sl_config_find(config, SL_TEXT, "quantization_config");
	return at && json->tokens[at].type == SL_JSON_OBJECT ? at : 0;
}

/* A whole number of quantization_config, 0 when it says none. */
static uint64_t number_of(const struct sl_json *json, uint32_t object, const char *key)
{
	uint32_t at = sl_json_member(json, object, key);
	uint64_t value = 0;

	return at && json->tokens[at].type == SL_JSON_NUMBER && sl_json_u64(json, at, &value) == 0 ? value : 0;
}

/* What compressed-tensors' first group says about its weights or activations; 0: nothing. */
static uint32_t group_says(const struct sl_json *json, uint32_t object, const char *what)
{
	uint32_t groups = sl_json_member(json, object, "config_groups"), said;

	if (!groups || json->tokens[groups].type != SL_JSON_OBJECT || json->tokens[groups].n == 0)
		return 0;
	uint32_t first = sl_json_first(json, groups) + 1;
	if (json->tokens[first].type != SL_JSON_OBJECT)
		return 0;
	said = sl_json_member(json, first, what);
	return said && json->tokens[said].type == SL_JSON_OBJECT ? said : 0;
}

/* Are all weights quantised as those of the first group? */
static bool has_one_group(const struct sl_json *json, uint32_t object)
{
	uint32_t groups = sl_json_member(json, object, "config_groups");

	return groups && json->tokens[groups].n == 1;
}

/* Rows or columns of a block or a group; larger ones than any matrix count as not said. */
static uint64_t size_of(uint64_t value)
{
	return value <= SIZE_MAX_SAID ? value : 0;
}

static void read_block(struct sl_quant *quant, const struct sl_json *json)
{
	uint32_t list = sl_json_member(json, quant->object, "weight_block_size");
	uint64_t value;

	if (!list || json->tokens[list].type != SL_JSON_ARRAY || json->tokens[list].n != 2)
		return;
	for (uint32_t i = 0, at = list + 1; i < 2; i++, at = sl_json_next(json, at)) {
		if (json->tokens[at].type == SL_JSON_NUMBER && sl_json_u64(json, at, &value) == 0)
			quant->block[i] = size_of(value);
	}
	if (!quant->block[0] || !quant->block[1])
		quant->block[0] = quant->block[1] = 0;
}

static void read_kinds(struct sl_quant *quant, const struct sl_json *json)
{
	uint32_t sym = sl_json_member(json, quant->object, "sym"),
		 cache = sl_json_member(json, quant->object, "kv_cache_scheme");

	quant->symmetric = sym && json->tokens[sym].type == SL_JSON_TRUE;
	quant->weight_only =
		group_says(json, quant->object, "weights") && !group_says(json, quant->object, "input_activations");
	quant->cache = cache && json->tokens[cache].type == SL_JSON_OBJECT;
}

static int read_numbers(struct sl_quant *quant, const struct sl_json *json, struct sl_error *err)
{
	uint32_t bound = sl_json_member(json, quant->object, "activation_scale_ub"),
		 weights = group_says(json, quant->object, "weights");
	uint64_t bits = number_of(json, quant->object, "bits");

	if (!bits && weights)
		bits = number_of(json, weights, "num_bits");
	if (bits && bits != 4 && bits != 8)
		return sl_fail(err, EINVAL, "config.json: %llu-bit %s is refused: vLLM loads 4 and 8 bits",
			       (unsigned long long)bits, quant->scheme->method);
	quant->bits = (unsigned)bits;
	quant->group = size_of(number_of(json, quant->object, "group_size"));
	if (weights && has_one_group(json, quant->object))
		quant->group = size_of(number_of(json, weights, "group_size"));
	if (bound && json->tokens[bound].type == SL_JSON_NUMBER)
		quant->fill = strtof(json->text + json->tokens[bound].start, NULL);
	read_block(quant, json);
	read_kinds(quant, json);
	return 0;
}

/* GPTQ with act-order in groups permutes columns between ranks: vLLM refuses it since 0.3x. SGLang sorts g_idx before its
 * sharded_state loads it, and does not again (gptq_kernels.py). */
static int check_gptq(const struct sl_quant *quant, const struct sl_json *json, struct sl_error *err)
{
	uint32_t order = sl_json_member(json, quant->object, "desc_act"),
		 size = sl_json_member(json, quant->object, "group_size");
	bool grouped = !size || json->text[json->tokens[size].start] != '-';

	if (order && json->tokens[order].type == SL_JSON_TRUE && grouped)
		return sl_fail(
			err, EINVAL,
			"config.json: GPTQ with desc_act true and groups (act-order) is refused: vLLM refuses it, and SGLang's sharded_state loses the order");
	return 0;
}

int sl_quant_find(struct sl_quant *quant, const struct sl_config *config, int dirfd, struct sl_error *err)
{
	const struct sl_json *json = &config->json;

	*quant = (struct sl_quant){ .object = find_object(config) };
	if (!quant->object)
		return by_file(quant, dirfd, err);
	uint32_t method = sl_json_member(json, quant->object, "quant_method");
	if (!method || json->tokens[method].type != SL_JSON_STRING)
		return sl_fail(err, EINVAL, "config.json: quantization_config has no quant_method");
	const struct sl_json_token *token = &json->tokens[method];
	int ret = by_method(quant, json->text + token->start, token->end - token->start, "config.json", err);
	if (!ret)
		ret = read_numbers(quant, json, err);
	return !ret && quant->scheme == &gptq_scheme ? check_gptq(quant, json, err) : ret;
}

/* ---- ignore lists ---- */

/* Python's re.match(), for what ignore lists use of it. Counts are expanded when they are compiled, and what refers back is
 * searched for without end: a configuration is not trusted with either. */
static bool regex_matches(const char *pattern, const char *module)
{
	regmatch_t match;
	regex_t compiled;

	for (const char *at = pattern; *at; at++) {
		if (*at == '{' || (at[0] == '\\' && at[1] >= '0' && at[1] <= '9'))
			return false;
	}
	if (regcomp(&compiled, pattern, REG_EXTENDED))
		return false;
	bool matches = regexec(&compiled, module, 1, &match, 0) == 0 && match.rm_so == 0;
	regfree(&compiled);
	return matches;
}

static bool entry_matches(const char *entry, const char *module)
{
	size_t len = strlen(entry);

	if (strncmp(entry, "re:", 3) == 0)
		return regex_matches(entry + 3, module);
	return strncmp(entry, module, len) == 0 && (module[len] == '\0' || module[len] == '.');
}

/* Names of modules have nothing to escape but the backslashes of patterns. */
static void copy_entry(char *entry, const char *text, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		if (text[i] == '\\' && i + 1 < len)
			i++;
		*entry++ = text[i];
	}
	*entry = '\0';
}

bool sl_quant_ignores(const struct sl_quant *quant, const struct sl_config *config, const char *module)
{
	static const char *const keys[] = { "modules_to_not_convert", "ignored_layers", "ignore" };
	const struct sl_json *json = &config->json;
	char entry[512];

	for (size_t k = 0; quant->object && k < sizeof(keys) / sizeof(keys[0]); k++) {
		uint32_t list = sl_json_member(json, quant->object, keys[k]);
		if (!list || json->tokens[list].type != SL_JSON_ARRAY)
			continue;
		uint32_t at = list + 1;
		for (uint32_t i = 0; i < json->tokens[list].n; i++, at = sl_json_next(json, at)) {
			const struct sl_json_token *t = &json->tokens[at];
			if (t->type != SL_JSON_STRING || t->end - t->start >= sizeof(entry))
				continue;
			copy_entry(entry, json->text + t->start, t->end - t->start);
			if (entry_matches(entry, module))
				return true;
		}
	}
	return false;
}
