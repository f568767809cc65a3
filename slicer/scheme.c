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
#define WEIGHT_I8     { ".weight", "weight", SL_MATRIX, SL_REQUIRED, SL_UNIT_1, SL_UNIT_1, false, SL_AS_STORED, SL_I8, 0 }
#define INT8_CHANNEL  { ".weight_scale", "weight_scale", SL_MATRIX, SL_REQUIRED, SL_UNIT_1, SL_UNIT_ALL, false, SL_AS_F32, SL_FLOAT, 0 }
#define INT8_INPUT    { ".input_scale", "input_scale", SL_LAST, SL_REQUIRED, SL_UNIT_ALL, SL_UNIT_ALL, false, SL_AS_F32, SL_FLOAT, 0 }, \
		      { ".input_zero_point", "input_zero_point", SL_LAST, SL_IF_THERE, SL_UNIT_ALL, SL_UNIT_ALL, false, SL_AS_STORED, SL_I8, 0 }
#define NO_INT8_EXPERTS .no_experts = "vLLM takes experts in INT8 with a scale per channel and none of inputs"
static const struct sl_storage int8_channel_static = {
	.name = "INT8 per channel, static inputs", .components = { WEIGHT_I8, INT8_CHANNEL, INT8_INPUT }, .n_components = 4, NO_INT8_EXPERTS,
};
static const struct sl_storage int8_tensor_static = {
	.name = "INT8 per tensor, static inputs", .components = { WEIGHT_I8, SCALE_OF("weight_scale", SL_REQUIRED), INT8_INPUT }, .n_components = 4, NO_INT8_EXPERTS,
};
static const struct sl_storage int8_channel = {
	.name = "INT8 per channel", .components = { WEIGHT_I8, INT8_CHANNEL }, .n_components = 2,
};
static const struct sl_storage int8_tensor = {
	.name = "INT8 per tensor", .components = { WEIGHT_I8, SCALE_OF("weight_scale", SL_REQUIRED) }, .n_components = 2, NO_INT8_EXPERTS,
};
/* Experts of other hidden sizes or groups vLLM holds as moe_wna16.py does, in bytes (marlin_utils.py,
 * check_moe_marlin_supports_config). */
#define MARLIN_EXPERTS .hidden_unit = 128, .groups = { 32, 64, 128 }
static const struct sl_storage awq = {
	.name = "AWQ", .components = {
		{ ".qweight", "qweight", SL_MATRIX, SL_REQUIRED, SL_UNIT_PACK, SL_UNIT_1, true, SL_AS_STORED, SL_I32, 0 },
		{ ".qzeros", "qzeros", SL_MATRIX, SL_REQUIRED, SL_UNIT_PACK, SL_UNIT_GROUP, true, SL_AS_STORED, SL_I32, 0 },
		{ ".scales", "scales", SL_MATRIX, SL_REQUIRED, SL_UNIT_1, SL_UNIT_GROUP, true, SL_AS_MODEL, SL_FLOAT, 0 },
	}, .n_components = 3, MARLIN_EXPERTS,
};
static const struct sl_storage gptq = {
	.name = "GPTQ", .components = {
		{ ".qweight", "qweight", SL_MATRIX, SL_REQUIRED, SL_UNIT_1, SL_UNIT_PACK, true, SL_AS_STORED, SL_I32, 0 },
		{ ".scales", "scales", SL_MATRIX, SL_REQUIRED, SL_UNIT_1, SL_UNIT_GROUP, true, SL_AS_MODEL, SL_FLOAT, 0 },
		{ ".qzeros", "qzeros", SL_MATRIX, SL_REQUIRED, SL_UNIT_PACK, SL_UNIT_GROUP, true, SL_AS_STORED, SL_I32, 0 },
		{ ".g_idx", "g_idx", SL_INPUTS, SL_DROPPED, SL_UNIT_ALL, SL_UNIT_ALL, false, SL_AS_STORED, SL_I32, 0 },
		/* auto_gptq.py gives experts a bias, zero unless the checkpoint has one. */
		{ NULL, "bias", SL_MATRIX, SL_FILLED_OF_EXPERTS, SL_UNIT_1, SL_UNIT_NONE, false, SL_AS_MODEL, SL_FLOAT, 0 },
	}, .n_components = 5, MARLIN_EXPERTS,
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

/* What a method's configuration class in vLLM refuses; below. */
static sl_quant_check check_fp8, check_gptq, check_awq, check_compressed;

static const struct sl_scheme none = {
	"none", "BF16, F16, F32", NULL, STORAGES(&sl_plain),
};
static const struct sl_scheme fp8 = {
	"fp8", "FP8, per tensor or in blocks", NULL,
	STORAGES(&fp8_block, &fp8_block_e8m0, &fp4_experts, &fp8_tensor, &sl_plain), CACHE(fp8_cache), AFTER(fp8_cache_after), .check = check_fp8,
};
static const struct sl_scheme fbgemm_fp8 = {
	"fbgemm_fp8", "FP8 per channel (fbgemm)", NULL, STORAGES(&fbgemm, &sl_plain), .convert_unlisted = true,
};
static const struct sl_scheme compressed_tensors = {
	"compressed-tensors", "FP8, INT8, W4A16, NVFP4, MXFP4 (llm-compressor)", NULL,
	STORAGES(&w4a16, &nvfp4, &mxfp4_packed, &fp8_channel, &fp8_tensor, &int8_channel_static, &int8_tensor_static,
		 &int8_channel, &int8_tensor, &sl_plain), CACHE(compressed_cache), .check = check_compressed,
};
static const struct sl_scheme modelopt = {
	"modelopt", "FP8, NVFP4 (ModelOpt)", NULL,
	STORAGES(&nvfp4_modelopt, &fp8_tensor, &sl_plain), CACHE(fp8_cache), .cache_scales_of_mla = true,
};
static const struct sl_scheme gptq_scheme = {
	"gptq", "4 and 8 bit (GPTQ)", NULL, STORAGES(&gptq, &sl_plain), .lists_modules = true, .check = check_gptq,
};
static const struct sl_scheme awq_scheme = { "awq", "4 bit (AWQ)", NULL, STORAGES(&awq, &sl_plain), .check = check_awq };
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

static uint32_t find_object(const struct sl_config *config)
{
	const struct sl_json *json = &config->json;
	uint32_t at = sl_json_member(json, 0, "quantization_config");

	if (!at || json->tokens[at].type != SL_JSON_OBJECT)
		at = sl_config_find(config, SL_TEXT, "quantization_config");
	return at && json->tokens[at].type == SL_JSON_OBJECT ? at : 0;
}

/* The first of some members, "w_bit|bits", that an object has and that is not null; 0: none. */
static uint32_t member_of(const struct sl_json *json, uint32_t object, const char *keys)
{
	char key[64];

	for (; *keys; keys += *keys == '|') {
		size_t len = strcspn(keys, "|");
		snprintf(key, sizeof(key), "%.*s", (int)len, keys);
		uint32_t at = sl_json_member(json, object, key);
		if (at && json->tokens[at].type != SL_JSON_NULL)
			return at;
		keys += len;
	}
	return 0;
}

/* A whole number of quantization_config, 0 when it says none. */
static uint64_t number_of(const struct sl_json *json, uint32_t object, const char *keys)
{
	uint32_t at = member_of(json, object, keys);
	uint64_t value = 0;

	return at && json->tokens[at].type == SL_JSON_NUMBER && sl_json_u64(json, at, &value) == 0 ? value : 0;
}

static bool is_text(const struct sl_json *json, uint32_t at, const char *text)
{
	return at && json->tokens[at].type == SL_JSON_STRING && sl_json_equal(json, at, text);
}

/* What one of compressed-tensors' groups, by its key, says about its weights or its input_activations; 0: nothing. */
static uint32_t said_of(const struct sl_json *json, uint32_t key, const char *what)
{
	uint32_t said = json->tokens[key + 1].type == SL_JSON_OBJECT ? sl_json_member(json, key + 1, what) : 0;

	return said && json->tokens[said].type == SL_JSON_OBJECT ? said : 0;
}

/* The config_groups of compressed-tensors; 0: none. */
static uint32_t groups_of(const struct sl_json *json, uint32_t object)
{
	uint32_t groups = sl_json_member(json, object, "config_groups");

	return groups && json->tokens[groups].type == SL_JSON_OBJECT && json->tokens[groups].n ? groups : 0;
}

/* Of how many bits are the integers of a group? 0: it has none, or does not say. */
static uint64_t width_of(const struct sl_json *json, uint32_t weights)
{
	uint32_t type = sl_json_member(json, weights, "type");

	return !type || is_text(json, type, "int") ? number_of(json, weights, "num_bits") : 0;
}

/* Groups may differ in anything but the width of packed integers, which no tensor says. */
static int read_groups(struct sl_quant *quant, const struct sl_json *json, uint64_t *bits, struct sl_error *err)
{
	uint32_t groups = groups_of(json, quant->object), at = groups ? sl_json_first(json, groups) : 0;

	for (uint32_t i = 0; groups && i < json->tokens[groups].n; i++, at = sl_json_next(json, at)) {
		uint32_t weights = said_of(json, at, "weights");
		uint64_t width = weights ? width_of(json, weights) : 0;
		if (width && *bits && width != *bits)
			return sl_fail(
				err, EINVAL,
				"config.json: config_groups of %llu and of %llu bits: only one width of integers is served",
				(unsigned long long)*bits, (unsigned long long)width);
		*bits = width ? width : *bits;
	}
	return 0;
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

/* One group speaks for all weights, several for none. */
static uint64_t group_size(const struct sl_json *json, uint32_t object)
{
	uint32_t groups = groups_of(json, object), first = groups ? sl_json_first(json, groups) : 0;
	uint32_t weights = groups && json->tokens[groups].n == 1 ? said_of(json, first, "weights") : 0;

	if (weights)
		return size_of(number_of(json, weights, "group_size"));
	return size_of(number_of(json, object, "q_group_size|group_size"));
}

static void read_kinds(struct sl_quant *quant, const struct sl_json *json)
{
	uint32_t cache = sl_json_member(json, quant->object, "kv_cache_scheme"),
		 groups = groups_of(json, quant->object), first = groups ? sl_json_first(json, groups) : 0;

	uint32_t inputs = first ? said_of(json, first, "input_activations") : 0;
	uint32_t symmetric = inputs ? sl_json_member(json, inputs, "symmetric") : 0;
	quant->asymmetric = symmetric && json->tokens[symmetric].type == SL_JSON_FALSE;
	quant->weight_only = first && said_of(json, first, "weights") && !inputs;
	quant->cache = cache && json->tokens[cache].type == SL_JSON_OBJECT;
}

static int read_numbers(struct sl_quant *quant, const struct sl_json *json, struct sl_error *err)
{
	uint32_t bound = sl_json_member(json, quant->object, "activation_scale_ub");
	uint64_t bits = number_of(json, quant->object, "w_bit|bits");

	int ret = read_groups(quant, json, &bits, err);
	if (ret)
		return ret;
	if (bits && bits != 4 && bits != 8)
		return sl_fail(err, EINVAL, "config.json: %llu-bit %s is refused: vLLM's own kernels take 4 and 8 bits",
			       (unsigned long long)bits, quant->scheme->method);
	quant->bits = (unsigned)bits;
	quant->group = group_size(json, quant->object);
	if (bound && json->tokens[bound].type == SL_JSON_NUMBER)
		quant->fill = strtof(json->text + json->tokens[bound].start, NULL);
	read_block(quant, json);
	read_kinds(quant, json);
	return 0;
}

/* ---- what vLLM refuses ---- */

/* Members without which vLLM does not even begin (base_config.py, get_from_keys). */
static int need_members(const struct sl_quant *quant, const struct sl_json *json, const char *const *needed,
			struct sl_error *err)
{
	for (; *needed; needed++) {
		if (!member_of(json, quant->object, *needed))
			return sl_fail(
				err, EINVAL,
				"config.json: quantization_config of '%s' has no %.*s, without which vLLM refuses it",
				quant->scheme->method, (int)strcspn(*needed, "|"), *needed);
	}
	return 0;
}

/* Blocks have no static scales of activations (fp8.py, Fp8Config). */
static int check_fp8(const struct sl_quant *quant, const struct sl_json *json, struct sl_error *err)
{
	uint32_t scheme = member_of(json, quant->object, "activation_scheme");

	if (scheme && !is_text(json, scheme, "static") && !is_text(json, scheme, "dynamic"))
		return sl_fail(
			err, EINVAL,
			"config.json: activation_scheme of 'fp8' is neither static nor dynamic: vLLM refuses it");
	if (is_text(json, scheme, "static") && member_of(json, quant->object, "weight_block_size"))
		return sl_fail(
			err, EINVAL,
			"config.json: 'fp8' in blocks with activation_scheme static is refused, as vLLM refuses it");
	return 0;
}

/* Groups that the kernels of GPTQ take (marlin_utils.py, MARLIN_SUPPORTED_GROUP_SIZES). */
static int check_gptq_group(const struct sl_quant *quant, const struct sl_json *json, struct sl_error *err)
{
	static const char *const sizes[] = { "-1", "32", "64", "128" };
	const struct sl_json_token *size = &json->tokens[sl_json_member(json, quant->object, "group_size")];
	char shown[40];

	for (size_t i = 0; size->type == SL_JSON_NUMBER && i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		if (size->end - size->start == strlen(sizes[i]) &&
		    memcmp(json->text + size->start, sizes[i], strlen(sizes[i])) == 0)
			return 0;
	}
	return sl_fail(err, EINVAL,
		       "config.json: GPTQ with group_size %s is refused: vLLM takes 32, 64, 128, or -1 for all columns",
		       sl_escape(shown, sizeof(shown), json->text + size->start, size->end - size->start));
}

/* Rules for some modules: those that except them (-:) show in what is stored; another width, or other groups, would not. */
static int check_gptq_rules(const struct sl_quant *quant, const struct sl_json *json, struct sl_error *err)
{
	static const char *const keys[] = { "bits", "group_size", "sym", "desc_act" };
	uint32_t rules = member_of(json, quant->object, "dynamic");
	char shown[80];

	if (!rules || json->tokens[rules].type != SL_JSON_OBJECT)
		return 0;
	uint32_t at = sl_json_first(json, rules);
	for (uint32_t i = 0; i < json->tokens[rules].n; i++, at = sl_json_next(json, at)) {
		const struct sl_json_token *rule = &json->tokens[at];
		bool excepts = rule->end - rule->start >= 2 && memcmp(json->text + rule->start, "-:", 2) == 0;
		for (size_t k = 0; !excepts && json->tokens[at + 1].type == SL_JSON_OBJECT && k < 4; k++) {
			if (sl_json_member(json, at + 1, keys[k]))
				return sl_fail(
					err, EINVAL,
					"config.json: GPTQ's dynamic rule '%s' has its own %s: only one for all is "
					"served",
					sl_escape(shown, sizeof(shown), json->text + rule->start,
						  rule->end - rule->start),
					keys[k]);
		}
	}
	return 0;
}

/* Symmetric ones only, and none with act-order in groups, which permutes columns between ranks (auto_gptq.py,
 * AutoGPTQConfig; gptq_utils.py). SGLang sorts g_idx before its sharded_state loads it, and does not again
 * (gptq_kernels.py). */
static int check_gptq(const struct sl_quant *quant, const struct sl_json *json, struct sl_error *err)
{
	static const char *const needed[] = { "bits", "group_size", "desc_act", "sym", NULL };

	int ret = need_members(quant, json, needed, err);
	if (!ret)
		ret = check_gptq_group(quant, json, err);
	if (ret)
		return ret;
	if (!quant->bits)
		return sl_fail(err, EINVAL, "config.json: bits of 'gptq' is no number");
	if (json->tokens[sl_json_member(json, quant->object, "sym")].type != SL_JSON_TRUE)
		return sl_fail(err, EINVAL,
			       "config.json: GPTQ with sym false (asymmetric) is refused, as vLLM refuses it");
	if (json->tokens[sl_json_member(json, quant->object, "desc_act")].type != SL_JSON_FALSE && quant->group)
		return sl_fail(
			err, EINVAL,
			"config.json: GPTQ with desc_act true and groups (act-order) is refused: vLLM refuses it, and SGLang's sharded_state loses the order");
	return check_gptq_rules(quant, json, err);
}

/* auto_awq.py, AutoAWQConfig. */
static int check_awq(const struct sl_quant *quant, const struct sl_json *json, struct sl_error *err)
{
	static const char *const needed[] = { "bits|w_bit", "group_size|q_group_size", "zero_point", NULL };

	int ret = need_members(quant, json, needed, err);
	if (!ret && quant->bits != 4)
		ret = sl_fail(err, EINVAL, "config.json: AWQ of other than 4 bits is refused, as vLLM refuses it");
	return ret;
}

/* compressed_tensors.py: act-order, and sparse weights, which it no longer knows. */
static int check_compressed(const struct sl_quant *quant, const struct sl_json *json, struct sl_error *err)
{
	uint32_t groups = groups_of(json, quant->object), at = groups ? sl_json_first(json, groups) : 0;
	uint32_t sparse = member_of(json, quant->object, "sparsity_config"), targets;

	for (uint32_t i = 0; groups && i < json->tokens[groups].n; i++, at = sl_json_next(json, at)) {
		uint32_t weights = said_of(json, at, "weights"),
			 order = weights ? member_of(json, weights, "actorder") : 0;
		if (order && (json->tokens[order].type == SL_JSON_TRUE || is_text(json, order, "group") ||
			      is_text(json, order, "dynamic")))
			return sl_fail(err, EINVAL,
				       "config.json: compressed-tensors with actorder in groups is refused, as vLLM "
				       "refuses it");
	}
	targets = sparse && json->tokens[sparse].type == SL_JSON_OBJECT ? member_of(json, sparse, "targets") : 0;
	if (targets && json->tokens[targets].type == SL_JSON_ARRAY && json->tokens[targets].n)
		return sl_fail(err, EINVAL,
			       "config.json: compressed-tensors with a sparsity_config is refused, as vLLM refuses it");
	return 0;
}

/* ---- the quantisers' own files ---- */

enum { OWN_FILE_MAX = 1 << 20, OWN_DEPTH = 64 };

/* All of a small file, malloc'ed; NULL when there is none. */
static int read_own(int dirfd, const char *file, char **text, size_t *len, struct sl_error *err)
{
	int fd = openat(dirfd, file, O_RDONLY | O_CLOEXEC | O_NONBLOCK), ret = 0;
	ssize_t n = 1;

	*text = NULL;
	if (fd < 0)
		return errno == ENOENT ? 0 : sl_fail(err, errno, "%s: %s", file, strerror(errno));
	*text = malloc(OWN_FILE_MAX);
	if (!*text)
		ret = sl_fail(err, ENOMEM, "%s: out of memory", file);
	for (*len = 0; !ret && n > 0 && *len<OWN_FILE_MAX; *len += n> 0 ? (size_t)n : 0) {
		n = read(fd, *text + *len, OWN_FILE_MAX - *len);
		if (n < 0)
			ret = sl_fail(err, errno, "%s: %s", file, strerror(errno));
	}
	close(fd);
	if (ret) {
		free(*text);
		*text = NULL;
	}
	return ret;
}

/* What such a file says, as if it stood in config.json; its object is the whole of it. */
static int read_file(struct sl_quant *quant, const char *text, size_t len, const char *file, struct sl_error *err)
{
	struct sl_json json;
	int ret = sl_json_parse(&json, text, len, OWN_DEPTH, err);

	if (ret)
		return sl_error_prefix(err, "%s", file);
	if (json.tokens[0].type != SL_JSON_OBJECT)
		ret = sl_fail(err, EINVAL, "%s: no JSON object", file);
	if (!ret)
		ret = read_numbers(quant, &json, err);
	if (!ret && quant->scheme->check)
		ret = quant->scheme->check(quant, &json, err);
	sl_json_release(&json);
	return ret ? sl_error_prefix(err, "%s in the place of quantization_config", file) : 0;
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
	size_t len;
	char *text;

	quant->scheme = sl_schemes[0];
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		int ret = read_own(dirfd, files[i].file, &text, &len, err);
		if (ret)
			return ret;
		if (!text)
			continue;
		ret = by_method(quant, files[i].method, strlen(files[i].method), files[i].file, err);
		if (!ret)
			ret = read_file(quant, text, len, files[i].file, err);
		free(text);
		return ret;
	}
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
	return !ret && quant->scheme->check ? quant->scheme->check(quant, json, err) : ret;
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
