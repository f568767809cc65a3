/*
 * scheme.c - the table of quantisation schemes.
 */
#include "slicer/scheme.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define NOT_YET "quantised checkpoints are not supported yet"

/* clang-format off */
/* To add a scheme: a row; the first one is for checkpoints without any. */
const struct sl_scheme sl_schemes[] = {
	{ "none",               "BF16, F16, F32",                          NULL },
	{ "fp8",                "FP8, per tensor or in blocks",            NOT_YET },
	{ "fbgemm_fp8",         "FP8 per channel (fbgemm)",                NOT_YET },
	{ "compressed-tensors", "FP8, INT8, W4A16, NVFP4",                 NOT_YET },
	{ "modelopt",           "FP8, NVFP4 (ModelOpt)",                   NOT_YET },
	{ "gptq",               "4 and 8 bit (GPTQ)",                      NOT_YET },
	{ "awq",                "4 bit (AWQ)",                             NOT_YET },
	{ "mxfp4",              "MXFP4 experts",                           NOT_YET },
	{ "mxfp8",              "MXFP8",                                   NOT_YET },
	{ "bitsandbytes",       "INT8, NF4 (bitsandbytes)",                "its packing is no slice of a matrix, and vLLM dropped it" },
	{ "torchao",            "torchao",                                 "its tensors are flattened by torch's own subclasses" },
	{ "gguf",               "GGUF",                                    "no safetensors" },
};
/* clang-format on */
const unsigned sl_n_schemes = sizeof(sl_schemes) / sizeof(sl_schemes[0]);

static int by_method(const struct sl_scheme **out, const char *method, size_t len, const char *where, struct sl_error *err)
{
	for (unsigned i = 1; i < sl_n_schemes; i++) {
		const struct sl_scheme *scheme = &sl_schemes[i];
		if (strlen(scheme->method) != len || memcmp(scheme->method, method, len) != 0)
			continue;
		*out = scheme;
		return scheme->refused ? sl_fail(err, EINVAL, "%s: quantisation '%s' (%s): %s", where, scheme->method,
						 scheme->title, scheme->refused) : 0;
	}
	char name[64];
	return sl_fail(err, EINVAL, "%s: quantisation '%s' is unknown", where, sl_escape(name, sizeof(name), method, len));
}

/* The files in which quantisers leave their own configuration. */
static int by_file(const struct sl_scheme **out, int dirfd, struct sl_error *err)
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
			return by_method(out, files[i].method, strlen(files[i].method), files[i].file, err);
	}
	*out = &sl_schemes[0];
	return 0;
}

int sl_scheme_find(const struct sl_scheme **out, const struct sl_config *config, int dirfd, struct sl_error *err)
{
	const struct sl_json *json = &config->json;
	uint32_t at = sl_json_member(json, 0, "quantization_config");

	if (!at || json->tokens[at].type != SL_JSON_OBJECT)
		at = sl_config_find(config, SL_TEXT, "quantization_config");
	if (!at || json->tokens[at].type != SL_JSON_OBJECT)
		return by_file(out, dirfd, err);
	uint32_t method = sl_json_member(json, at, "quant_method");
	if (!method || json->tokens[method].type != SL_JSON_STRING)
		return sl_fail(err, EINVAL, "config.json: quantization_config has no quant_method");
	const struct sl_json_token *token = &json->tokens[method];
	return by_method(out, json->text + token->start, token->end - token->start, "config.json", err);
}
