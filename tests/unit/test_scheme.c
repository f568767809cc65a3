/*
 * test_scheme.c - which quantisation a configuration names, what it says about it, which modules its lists except; and
 * that the tables hold together.
 */
#include "fixture.h"
#include "linear.h"

#include "slicer/scheme.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LEN(a) (sizeof(a) / sizeof((a)[0]))

static struct sl_arena arena;
static struct sl_config config;
static struct sl_quant quant;
static struct sl_error err;
static bool is_open;

static void close_config(void)
{
	if (is_open)
		sl_config_close(&config);
	is_open = false;
}

static void setup(void)
{
	fixture_open();
	sl_arena_init(&arena);
}

static void teardown(void)
{
	close_config();
	sl_arena_release(&arena);
	fixture_close();
}

TestSuite(scheme, .init = setup, .fini = teardown, .timeout = 30);

/* The quantisation of a config.json. */
static int find(const char *text)
{
	int dirfd = open(fixture_dir(), O_RDONLY | O_DIRECTORY);

	close_config();
	err = (struct sl_error)SL_ERROR_INIT;
	fixture_text("config.json", text);
	cr_assert_eq(sl_config_open(&config, dirfd, &arena, &err), 0, "%s", err.text);
	is_open = true;
	int ret = sl_quant_find(&quant, &config, dirfd, &err);
	close(dirfd);
	return ret;
}

/* The same for the members of a quantization_config. */
static int find_members(const char *members)
{
	char text[4000];

	snprintf(text, sizeof(text), "{\"quantization_config\":{%s}}", members);
	return find(text);
}

static void found(const char *members)
{
	cr_assert_eq(find_members(members), 0, "%s: %s", members, err.text);
}

static void refused(const char *members, const char *part)
{
	cr_assert_eq(find_members(members), -EINVAL, "%s", members);
	cr_assert(strstr(err.text, part), "'%s' lacks '%s'", err.text, part);
	cr_assert(strstr(err.text, "config.json") && !strchr(err.text, '\n'), "%s", err.text);
}

/* ---- which ---- */

Test(scheme, none)
{
	cr_assert_eq(find("{}"), 0);
	cr_assert(quant.scheme == sl_schemes[0] && quant.object == 0);
	cr_assert_eq(find("{\"quantization_config\":null}"), 0);
	cr_assert(quant.scheme == sl_schemes[0]);
	cr_assert_eq(find("{\"quantization_config\":\"fp8\"}"), 0);
	cr_assert(quant.scheme == sl_schemes[0]);
}

Test(scheme, every_method)
{
	char members[200];

	/* Members that some want are nothing to the others. */
	for (const struct sl_scheme *const *at = sl_schemes + 1; *at; at++) {
		snprintf(members, sizeof(members),
			 "\"quant_method\":\"%s\",\"bits\":4,\"group_size\":128,"
			 "\"desc_act\":false,\"sym\":true,\"zero_point\":true",
			 (*at)->method);
		if ((*at)->refused)
			refused(members, (*at)->refused);
		else
			found(members);
		cr_assert(quant.scheme == *at);
	}
}

Test(scheme, names_that_are_none)
{
	static const char *const names[] = {
		"fp", "fp88", "FP8", "", "none", "gpt", "compressed_tensors", "fp8\\u0000"
	};

	for (size_t i = 0; i < LEN(names); i++) {
		char members[100];
		snprintf(members, sizeof(members), "\"quant_method\":\"%s\"", names[i]);
		refused(members, "unknown");
	}
	refused("\"quant_method\":\"x\\u001b[2J\"", "unknown");
	cr_assert(!strchr(err.text, 27), "%s", err.text);
}

Test(scheme, without_a_method)
{
	refused("", "no quant_method");
	refused("\"quant_method\":null", "no quant_method");
	refused("\"quant_method\":8", "no quant_method");
	refused("\"quant_method\":[\"fp8\"]", "no quant_method");
}

Test(scheme, in_the_text_models_section)
{
	cr_assert_eq(find("{\"text_config\":{\"quantization_config\":{" AWQ_MEMBERS("4", "128") "}}}"), 0);
	cr_assert_str_eq(quant.scheme->method, "awq");
	cr_assert_eq(quant.bits, 4);
	cr_assert_eq(find("{\"quantization_config\":{\"quant_method\":\"fp8\"},"
			  "\"text_config\":{\"quantization_config\":{\"quant_method\":\"awq\"}}}"),
		     0);
	cr_assert_str_eq(quant.scheme->method, "fp8");
}

/* config.json has the first word, then the files of the quantisers. */
Test(scheme, B176_files_of_the_quantisers)
{
	static const struct {
		const char *file, *method, *text;
		unsigned bits;
	} files[] = { { "quant_config.json", "awq", "{\"zero_point\":true,\"q_group_size\":64,\"w_bit\":4}", 4 },
		      { "quantize_config.json", "gptq", "{" GPTQ_MEMBERS("8", "64") "}", 8 },
		      { "hf_quant_config.json", "modelopt", "{}", 0 } };

	for (size_t i = 0; i < LEN(files); i++) {
		fixture_text(files[i].file, files[i].text);
		cr_assert_eq(find("{}"), 0, "%s", err.text);
		cr_assert_str_eq(quant.scheme->method, files[i].method);
		cr_assert(quant.object == 0 && quant.bits == files[i].bits && quant.group == (files[i].bits ? 64 : 0));
		found("\"quant_method\":\"fp8\"");
		cr_assert_str_eq(quant.scheme->method, "fp8");
	}
}

/* What such a file says is refused as it would be in config.json. */
Test(scheme, B176_files_that_are_refused)
{
	static const struct {
		const char *text, *part;
	} cases[] = {
		{ "{\"bits\":4,\"group_size\":128,\"desc_act\":false,\"sym\":false}", "sym false" },
		{ "{\"bits\":3,\"group_size\":128,\"desc_act\":false,\"sym\":true}", "3-bit gptq" },
		{ "{}", "has no bits" },
		{ "[]", "no JSON object" },
		{ "", "quantize_config.json" },
	};

	for (size_t i = 0; i < LEN(cases); i++) {
		fixture_text("quantize_config.json", cases[i].text);
		cr_assert_eq(find("{}"), -EINVAL);
		cr_assert(strstr(err.text, "quantize_config.json") && strstr(err.text, cases[i].part), "%s", err.text);
	}
}

/* ---- what it says ---- */

Test(scheme, bits)
{
	found(GPTQ_MEMBERS("8", "128"));
	cr_assert_eq(quant.bits, 8);
	found(AWQ_MEMBERS("4", "128"));
	cr_assert_eq(quant.bits, 4);
	found("\"quant_method\":\"awq\",\"w_bit\":4,\"q_group_size\":64,\"zero_point\":true");
	cr_assert(quant.bits == 4 && quant.group == 64, "AWQ's own names");
	found("\"quant_method\":\"compressed-tensors\",\"config_groups\":{\"FP8\":{\"weights\":{\"num_bits\":8}},\"b\":{}}");
	cr_assert_eq(quant.bits, 8);
}

Test(scheme, B141_bits_that_no_kernel_has)
{
	static const char *const bits[] = { "1", "2", "3", "5", "16", "32", "64", "4294967300" };

	for (size_t i = 0; i < LEN(bits); i++) {
		char members[200], want[40];
		snprintf(want, sizeof(want), "%s-bit ", bits[i]);
		snprintf(members, sizeof(members), "\"quant_method\":\"gptq\",\"bits\":%s", bits[i]);
		refused(members, want);
		snprintf(
			members, sizeof(members),
			"\"quant_method\":\"compressed-tensors\",\"config_groups\":{\"a\":{\"weights\":{\"num_bits\":%s}}}",
			bits[i]);
		refused(members, want);
	}
}

Test(scheme, groups)
{
	static const struct {
		const char *members;
		uint64_t group;
	} cases[] = {
		{ AWQ_MEMBERS("4", "128"), 128 },
		{ AWQ_MEMBERS("4", "-1"), 0 },
		{ AWQ_MEMBERS("4", "0"), 0 },
		{ AWQ_MEMBERS("4", "1e9"), 0 },
		{ AWQ_MEMBERS("4", "4294967296"), 0 },
		{ "\"quant_method\":\"compressed-tensors\",\"config_groups\":{\"a\":{\"weights\":{\"group_size\":32}}}",
		  32 },
		{ "\"quant_method\":\"compressed-tensors\",\"config_groups\":{\"a\":{\"weights\":{\"group_size\":null}}}",
		  0 },
		/* Of two, neither speaks for all. */
		{ "\"quant_method\":\"compressed-tensors\",\"config_groups\":{\"a\":{\"weights\":{\"group_size\":32}},"
		  "\"b\":{\"weights\":{\"group_size\":64}}}",
		  0 },
		{ "\"quant_method\":\"compressed-tensors\",\"config_groups\":{}", 0 },
		{ "\"quant_method\":\"compressed-tensors\",\"config_groups\":[1]", 0 },
		{ "\"quant_method\":\"compressed-tensors\",\"config_groups\":{\"a\":7}", 0 },
		{ "\"quant_method\":\"compressed-tensors\",\"config_groups\":{\"a\":{\"weights\":null}}", 0 },
	};

	for (size_t i = 0; i < LEN(cases); i++) {
		found(cases[i].members);
		cr_assert_eq(quant.group, cases[i].group, "%s", cases[i].members);
	}
}

Test(scheme, B130_blocks)
{
	found("\"quant_method\":\"fp8\",\"weight_block_size\":[128, 64]");
	cr_assert(quant.block[0] == 128 && quant.block[1] == 64);
	found("\"quant_method\":\"fp8\",\"weight_block_size\":[128,-1]");
	cr_assert(quant.block[0] == 0 && quant.block[1] == 0, "one size alone is none");
}

Test(scheme, upper_bound_of_activations)
{
	found("\"quant_method\":\"fbgemm_fp8\",\"activation_scale_ub\":1200.5");
	cr_assert(quant.fill == 1200.5f);
	found("\"quant_method\":\"fbgemm_fp8\",\"activation_scale_ub\":\"1200\"");
	cr_assert(quant.fill == 0);
}

/* ---- what vLLM refuses ---- */

/* Groups in the order of activations permute columns between ranks; one group of all of them does not. */
Test(scheme, B135_act_order)
{
	refused("\"quant_method\":\"gptq\",\"bits\":4,\"sym\":true,\"desc_act\":true,\"group_size\":128", "act-order");
	found("\"quant_method\":\"gptq\",\"bits\":4,\"sym\":true,\"desc_act\":true,\"group_size\":-1");
	found(GPTQ_MEMBERS("4", "128"));
	refused("\"quant_method\":\"compressed-tensors\",\"config_groups\":{\"a\":{\"weights\":{\"num_bits\":4}},"
		"\"b\":{\"weights\":{\"actorder\":\"group\"}}}",
		"actorder in groups");
	refused("\"quant_method\":\"compressed-tensors\",\"config_groups\":{\"a\":{\"weights\":{\"actorder\":true}}}",
		"actorder in groups");
	found("\"quant_method\":\"compressed-tensors\",\"config_groups\":{\"a\":{\"weights\":{\"actorder\":\"static\"}}}");
}

/* Members that vLLM asks for by name. */
Test(scheme, members_that_are_absent)
{
	static const char *const gptq[] = { "\"bits\":4", "\"group_size\":128", "\"desc_act\":false", "\"sym\":true" };
	static const char *const awq[] = { "\"bits\":4", "\"group_size\":128", "\"zero_point\":true" };
	const struct {
		const char *method, *const *members;
		size_t n;
	} methods[] = { { "gptq", gptq, LEN(gptq) }, { "awq", awq, LEN(awq) } };

	for (size_t m = 0; m < LEN(methods); m++) {
		for (size_t absent = 0; absent < methods[m].n; absent++) {
			char members[300], want[100];
			size_t len = (size_t)snprintf(members, sizeof(members), "\"quant_method\":\"%s\"",
						      methods[m].method);
			for (size_t i = 0; i < methods[m].n; i++) {
				if (i != absent)
					len += (size_t)snprintf(members + len, sizeof(members) - len, ",%s",
								methods[m].members[i]);
			}
			snprintf(want, sizeof(want), "of '%s' has no %.*s,", methods[m].method,
				 (int)strcspn(methods[m].members[absent] + 1, "\""), methods[m].members[absent] + 1);
			refused(members, want);
		}
	}
}

Test(scheme, gptq_that_vllm_refuses)
{
	static const char base[] = "\"quant_method\":\"gptq\",\"desc_act\":false,";
	static const struct {
		const char *members, *part;
	} cases[] = {
		{ "\"bits\":4,\"group_size\":128,\"sym\":false", "sym false" },
		{ "\"bits\":8,\"group_size\":128,\"sym\":false", "sym false" },
		{ "\"bits\":3,\"group_size\":128,\"sym\":true", "3-bit gptq" },
		{ "\"bits\":2,\"group_size\":128,\"sym\":true", "2-bit gptq" },
		{ "\"bits\":\"4\",\"group_size\":128,\"sym\":true", "bits of 'gptq' is no number" },
		{ "\"bits\":4,\"group_size\":16,\"sym\":true", "group_size 16 is refused" },
		{ "\"bits\":4,\"group_size\":256,\"sym\":true", "group_size 256 is refused" },
		{ "\"bits\":4,\"group_size\":\"128\",\"sym\":true", "group_size 128 is refused" },
		{ "\"bits\":4,\"group_size\":128,\"sym\":true,\"dynamic\":{\"-:.*gate\":{},\"+:.*up\":{\"bits\":8}}",
		  "dynamic rule '+:.*up' has its own bits" },
		{ "\"bits\":4,\"group_size\":128,\"sym\":true,\"dynamic\":{\".*up\":{\"group_size\":64}}",
		  "dynamic rule '.*up' has its own group_size" },
	};
	char members[300];

	for (size_t i = 0; i < LEN(cases); i++) {
		snprintf(members, sizeof(members), "%s%s", base, cases[i].members);
		refused(members, cases[i].part);
	}
	found(GPTQ_MEMBERS("4", "64") ",\"dynamic\":{\"-:.*gate\":{\"bits\":8},\"+:.*up\":{}}");
	found(GPTQ_MEMBERS("4", "32") ",\"dynamic\":null");
}

Test(scheme, awq_that_vllm_refuses)
{
	refused(AWQ_MEMBERS("8", "128"), "AWQ of other than 4 bits");
	refused(AWQ_MEMBERS("\"4\"", "128"), "AWQ of other than 4 bits");
	refused(AWQ_MEMBERS("3", "128"), "3-bit awq");
	refused("\"quant_method\":\"awq\",\"w_bit\":8,\"q_group_size\":128,\"zero_point\":true",
		"AWQ of other than 4 bits");
	found("\"quant_method\":\"awq\",\"bits\":4,\"group_size\":16,\"zero_point\":false");
}

Test(scheme, fp8_that_vllm_refuses)
{
	refused("\"quant_method\":\"fp8\",\"activation_scheme\":\"none\"", "neither static nor dynamic");
	refused("\"quant_method\":\"fp8\",\"activation_scheme\":\"static\",\"weight_block_size\":[128,128]",
		"in blocks");
	found("\"quant_method\":\"fp8\",\"activation_scheme\":\"static\",\"weight_block_size\":null");
	found("\"quant_method\":\"fp8\",\"activation_scheme\":\"dynamic\",\"weight_block_size\":[128,128]");
}

/* Groups by any name; of two widths of integers no tensor would say which it has. */
Test(scheme, B157_groups_of_two_widths)
{
	static const char two[] =
		"\"quant_method\":\"compressed-tensors\",\"config_groups\":{"
		"\"W4A16\":{\"targets\":[\"re:.*mlp.*\"],\"weights\":{\"num_bits\":4,\"type\":\"int\"}},"
		"\"%s\":{\"targets\":[\"Linear\"],\"weights\":{\"num_bits\":8,\"type\":\"%s\"}}}";
	char members[400];

	snprintf(members, sizeof(members), two, "W8A16", "int");
	refused(members, "of 4 and of 8 bits");
	snprintf(members, sizeof(members), two, "FP8", "float");
	found(members);
	cr_assert_eq(quant.bits, 4);
}

Test(scheme, sparse_weights)
{
	refused("\"quant_method\":\"compressed-tensors\",\"sparsity_config\":{\"format\":\"sparse-24-bitmask\","
		"\"targets\":[\"Linear\"]}",
		"sparsity_config");
	found("\"quant_method\":\"compressed-tensors\",\"sparsity_config\":{\"format\":\"dense\",\"targets\":[]}");
	found("\"quant_method\":\"compressed-tensors\",\"sparsity_config\":{}");
}

/* ---- ignore lists ---- */

static bool ignores(const char *key, const char *entry, const char *module)
{
	char members[600];

	snprintf(members, sizeof(members), "\"quant_method\":\"fp8\",\"%s\":[7,null,\"other\",\"%s\"]", key, entry);
	found(members);
	return sl_quant_ignores(&quant, &config, module);
}

Test(scheme, B131_B132_lists_of_modules)
{
	static const struct {
		const char *entry, *module;
		bool matches;
	} cases[] = {
		{ "lm_head", "lm_head", true },
		{ "lm_hea", "lm_head", false },
		{ "lm_head.x", "lm_head", false },
		{ "model.layers.1", "model.layers.1.mlp.up_proj", true },
		{ "model.layers.1", "model.layers.10.mlp.up_proj", false },
		{ "mlp.up_proj", "model.layers.1.mlp.up_proj", false },
		{ "re:.*self_attn.*", "model.layers.1.self_attn.q_proj", true },
		{ "re:.*self_attn.*", "model.layers.1.mlp.up_proj", false },
		{ "re:self_attn", "model.layers.1.self_attn.q_proj", false }, /* from the start, as Python's match() */
		{ "re:model", "model.layers.1.self_attn.q_proj", true },
		{ "re:(vision|lm_head)", "lm_head", true },
		{ "re:.*[0-9]+\\\\.mlp\\\\.gate$", "model.layers.12.mlp.gate", true },
		{ "re:.*[0-9]+\\\\.mlp\\\\.gate$", "model.layers.12.mlp.gate_proj", false },
		{ "re:(", "model", false },
		{ "re:", "model", true },
		{ "", "model", false },
	};
	static const char *const keys[] = { "modules_to_not_convert", "ignored_layers", "ignore" };

	for (size_t i = 0; i < LEN(cases); i++) {
		for (size_t k = 0; k < LEN(keys); k++)
			cr_assert_eq(ignores(keys[k], cases[i].entry, cases[i].module), cases[i].matches, "'%s' and %s",
				     cases[i].entry, cases[i].module);
	}
	cr_assert(!ignores("exclude", "lm_head", "lm_head"));
}

/* Counts would be expanded, references searched for without end. */
Test(scheme, patterns_that_are_traps)
{
	cr_assert(!ignores("ignore", "re:((((x{1,999}){1,999}){1,999}){1,999}){1,999}", "xxxxxxxxxxxxxxxxxxxxxxx"));
	cr_assert(!ignores("ignore", "re:(.*)(.*)(.*)(.*)(.*)\\\\1\\\\2\\\\3\\\\4\\\\5y",
			   "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"));
	cr_assert(!ignores("ignore", "re:(x*)*y", "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"));
}

Test(scheme, lists_that_are_none)
{
	static const char *const lists[] = { "null", "\"lm_head\"", "{\"lm_head\":1}", "[]", "[[\"lm_head\"]]" };

	for (size_t i = 0; i < LEN(lists); i++) {
		char members[100];
		snprintf(members, sizeof(members), "\"quant_method\":\"fp8\",\"ignore\":%s", lists[i]);
		found(members);
		cr_assert(!sl_quant_ignores(&quant, &config, "lm_head"), "%s", lists[i]);
	}
	cr_assert_eq(find("{}"), 0);
	cr_assert(!sl_quant_ignores(&quant, &config, "lm_head"));
}

/* ---- GPUs ---- */

Test(scheme, gpus)
{
	for (int i = 0; i < SL_N_GPUS; i++)
		cr_assert_eq(sl_gpu_find(sl_gpu_names[i], strlen(sl_gpu_names[i])), i);
	cr_assert_eq(sl_gpu_find("sm90", 3), -1);
	cr_assert_eq(sl_gpu_find("sm900", 5), -1);
	cr_assert_eq(sl_gpu_find("", 0), -1);
}

/* ---- the tables ---- */

static void check_storage(const struct sl_scheme *scheme, const struct sl_storage *s)
{
	cr_assert(s->name && s->name[0] && s->n_components > 0 && s->n_components <= SL_COMPONENTS_MAX, "%s", s->name);
	cr_assert(s->components[0].need == SL_REQUIRED && s->components[0].form == SL_MATRIX, "%s: %s", scheme->method,
		  s->name);
	for (unsigned i = 0; i < s->n_components; i++) {
		const struct sl_component *c = &s->components[i];
		cr_assert(c->held && (!c->stored || c->stored[0] == '.' || c->stored[0] == '_'), "%s", s->name);
		cr_assert(c->form != SL_SINGLE || c->need == SL_FILLED, "%s: %s", s->name, c->held);
		for (unsigned other = 0; c->stored && other < i; other++)
			cr_assert_str_neq(c->stored, s->components[other].stored);
	}
}

/* Plain weights are the last format tried, and the only one without quantisation. */
Test(scheme, tables)
{
	for (const struct sl_scheme *const *at = sl_schemes; *at; at++) {
		const struct sl_storage *const *s = (*at)->storages;
		cr_assert((*at)->title && (*at)->title[0] && s[0] != NULL);
		for (; *s; s++) {
			check_storage(*at, *s);
			cr_assert_eq(*s == &sl_plain, s[1] == NULL, "%s", (*at)->method);
		}
		for (unsigned i = 0; i < (*at)->n_cache_scales; i++)
			cr_assert((*at)->cache_scales[i].name && (*at)->cache_scales[i].stored);
	}
}
