/*
 * linear.h - linear layers as quantisers store them, written down a second time: which tensors stand for a matrix, and
 * how many rows and columns one element of each stands for. Turns the plain weights of a checkpoint into them, and says
 * element by element what the components of an output must hold:
 *
 *      family_build(family_find("llama"), …, format->config);
 *      linear_quantise(format, "_proj.weight");
 *      checkpoint_write(2);
 *      linear_expect(view, format, "model.layers.0.mlp.down_proj", '.', "model.layers.0.mlp.down_proj[:,32:64]");
 */
#ifndef TESTS_UNIT_LINEAR_H
#define TESTS_UNIT_LINEAR_H

#include <stdbool.h>

#include "slicer/view.h"

/* Members of quantization_config that vLLM wants of every GPTQ and AWQ checkpoint. */
#define GPTQ_MEMBERS(bits, group) \
	"\"quant_method\":\"gptq\",\"bits\":" bits ",\"group_size\":" group ",\"desc_act\":false,\"sym\":true"
#define AWQ_MEMBERS(bits, group) \
	"\"quant_method\":\"awq\",\"bits\":" bits ",\"group_size\":" group ",\"zero_point\":true"

enum component_form { MATRIX_OF, ONE_NUMBER, UNSLICED };

struct component {
	const char *stored, *held; /* suffix in the checkpoint, name in vLLM */
	const char *dtype;	   /* stored; "": the checkpoint's */
	const char *as;		   /* in vLLM; NULL: as stored, "": the model's */
	unsigned out, in;	   /* rows and columns for which one element stands; 0: all */
	bool turned;		   /* [in, out] */
	enum component_form form;
};

struct format {
	const char *name;
	const char *config; /* members of config.json, with a comma in front */
	const struct component *components;
	unsigned n_components;
	unsigned n_cache_scales; /* of each attention, beside the four buffers */
	bool no_experts;	 /* vLLM has no experts of it, or holds them in another layout */
	bool biased_experts;	 /* vLLM gives experts a bias of zeros */
};

extern const struct format formats[];
extern const unsigned n_formats;

const struct format *format_find(const char *name);

/* Turn every matrix with this in its name into its components, filled with noise. */
void linear_quantise(const struct format *format, const char *needle);

/* Each component of the output module, in vLLM, is made of those modules: of all, of rows "name[2:4]" or of columns
 * "name[:,2:4]" of the matrix; joined parts have spaces between them, experts " | ". */
void linear_expect(const struct sl_view *view, const struct format *format, const char *output, char separator,
		   const char *parts);

/* The same where every module keeps its name, its components and their dtypes; what is not sliced keeps its shape. */
void linear_expect_stored(const struct sl_view *view, const struct format *format, const char *output,
			  const char *part);

#endif
