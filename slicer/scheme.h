/*
 * scheme.h - quantisation schemes as tables: which tensors stand for a linear layer, and how each lies over its matrix.
 *
 * A scheme is what config.json's quant_method names. It has formats: ways in which one linear layer [out, in] is stored. A
 * format is a list of components, each a tensor whose axes follow those of the matrix in a unit of its own:
 *
 *      weight_packed  I32 [out, in/8]       one word holds 8 columns
 *      weight_scale   BF16 [out, in/group]  one element scales a group of columns
 *      weight_scale_inv F32 [out/128, in/128]
 *      input_scale    F32 []                one per layer
 *      qweight        I32 [in/8, out]       turned: the first axis is `in`
 *
 * so that a slice of the matrix is a slice of each component, and fusing matrices is joining each component. What is on disk
 * decides which format a layer has: the first one whose components are all there in the right dtype and shape.
 *
 * To add a scheme: its formats and a row in scheme.c.
 */
#ifndef SLICER_SCHEME_H
#define SLICER_SCHEME_H

#include "slicer/config.h"
#include "slicer/dtype.h"
#include "slicer/error.h"
#include <stdbool.h>

#define SL_COMPONENTS_MAX 6

/* Logical rows or columns that one stored element stands for. */
enum sl_unit {
	SL_UNIT_1,
	SL_UNIT_PACK,  /* the elements of a packed word: 32 or 8 bits over the bits of an element */
	SL_UNIT_GROUP, /* a group of columns; its size follows from the shapes */
	SL_UNIT_BLOCK, /* a block of quantization_config.weight_block_size, rows and columns each */
	SL_UNIT_ALL,   /* the whole axis: one element, or none */
	SL_UNIT_NONE,  /* a fill has no such axis */
};

enum sl_form {
	SL_MATRIX, /* axes as their units say */
	SL_SCALAR, /* one element; fused layers hold a vector of them, one a part */
	SL_LAST,   /* a property that does not divide (weight_shape): fused layers hold the last part's */
	SL_SINGLE, /* a scalar that fused layers hold once, without dimensions */
	SL_INPUTS, /* one I32 per input: its group; fused layers hold the last part's, ranks that share inputs their own */
};

/* The dtype in which the engine holds a component. */
enum sl_held {
	SL_AS_STORED,
	SL_AS_F32,
	SL_AS_MODEL,
	SL_AS_U8, /* the same bytes, called U8 */
};

enum sl_need {
	SL_REQUIRED,	      /* the format is only this one when it is there */
	SL_IF_THERE,	      /* the engine has it when the checkpoint has it */
	SL_FILLED,	      /* the engine has it in any case: `fill` where the checkpoint has none */
	SL_FILLED_OF_EXPERTS, /* the same of experts; other modules have none */
	SL_DROPPED, /* the checkpoint may have it, the engine does not load it, or only older releases do (engine.h) */
};

struct sl_component {
	const char *stored; /* suffix in the checkpoint, with its separator: ".weight_scale"; NULL: never stored */
	const char *held;   /* name in the engine: "weight_scale" */
	uint8_t form, need;
	uint8_t out, in; /* enum sl_unit */
	bool turned;	 /* stored, and held, as [in, out] */
	uint8_t as;	 /* enum sl_held */
	int dtype;	 /* what it must be stored in: enum sl_dtype, or SL_FLOAT for F16, BF16, F32, SL_INTEGER */
	float fill;
};

#define SL_FLOAT   (-1)
#define SL_INTEGER (-2)

/* GPUs by what decides which kernels an engine takes. */
enum sl_gpu { SL_SM80, SL_SM89, SL_SM90, SL_SM100, SL_GFX942, SL_N_GPUS };
int sl_gpu_find(const char *name, size_t len); /* "sm90": enum sl_gpu, or -1 */
extern const char *const sl_gpu_names[SL_N_GPUS];

/* What the experts of a layer are rounded up to for a kernel, with zeros; 0 or 1: nothing. */
struct sl_padding {
	uint16_t inter, hidden;
};

struct sl_storage {
	const char *name; /* for `check` and `plan` */
	struct sl_component components[SL_COMPONENTS_MAX];
	unsigned n_components;
	unsigned group; /* columns that share a scale; 0: as the configuration or the shapes say */
	unsigned
		granule; /* ranks of experts share whole blocks of this many rows, the last may have fewer; 0: evenly */
	struct sl_padding padding[SL_N_GPUS]; /* of experts */
	unsigned hidden_unit, groups[3];      /* experts: multiples of it, and columns that share a scale; 0: any */
	const char *no_experts;		      /* why experts are not stored so; NULL: they may be */
	bool bias_on_first; /* what has no columns is held by the first rank alone where ranks share columns */
};

/* A tensor of each attention layer that no linear layer has: the scales of its KV cache. */
struct sl_cache_scale {
	const char *name; /* below the engine's attention module */
	const char
		*stored; /* names below the layer's attention in the checkpoint, joined by '|'; "" when never stored */
	bool as_model;	 /* in the model's dtype, else F32 */
	bool vector;	 /* [1], else no dimension */
	float value;	 /* where the checkpoint has none */
};

struct sl_quant;

/* What an engine refuses of a configuration in which it would otherwise know the scheme. */
typedef int sl_quant_check(const struct sl_quant *quant, const struct sl_json *json, struct sl_error *err);

struct sl_scheme {
	const char *method; /* quant_method */
	const char *title;
	const char *refused;			  /* why not; NULL: it works */
	const struct sl_storage *const *storages; /* NULL-terminated, tried in order */
	const struct sl_cache_scale *cache_scales;
	unsigned n_cache_scales;
	const struct sl_cache_scale *after; /* those that SGLang's layers have once it has post-processed */
	unsigned n_after;
	bool cache_scales_of_mla; /* MLA layers have them too */
	bool lists_modules;	  /* config.json must list the quantised modules (vLLM, GPTQ) */
	sl_quant_check *check;	  /* of a quantization_config; NULL: anything goes */
	bool convert_unlisted; /* a float weight that no ignore list names is converted and gets the components' fills */
};

extern const struct sl_scheme *const sl_schemes[]; /* NULL-terminated; the first is for checkpoints without any */
extern const struct sl_storage sl_plain;	   /* a weight as it is */

/* What a checkpoint's configuration says about its scheme. */
struct sl_quant {
	const struct sl_scheme *scheme;
	uint32_t object;   /* token of quantization_config in config.json; 0: in a file of its own, or none */
	unsigned bits;	   /* of a packed element; 0: not said */
	uint64_t group;	   /* group_size: columns that share a scale; 0: not said, or all of them */
	uint64_t block[2]; /* weight_block_size: rows, columns; 0: not said */
	float fill;	   /* of SL_SINGLE components: activation_scale_ub */
	bool weight_only;  /* compressed-tensors: activations stay as they are */
	bool asymmetric;   /* the same: activations have zero points */
	bool cache;	   /* a kv_cache_scheme: the KV cache has scales */
};

/* The scheme of the checkpoint in `dirfd`: quantization_config (top level, then text_config), else one of the quantiser's own
 * files. -EINVAL with a sentence when it is refused or unknown. */
int sl_quant_find(struct sl_quant *quant, const struct sl_config *config, int dirfd,
		  struct sl_error *err) SL_MUST_CHECK;

/* Does an ignore list of the configuration name this module: exactly, by a prefix of components, or by a pattern "re:…" that
 * matches from the name's start? Patterns that count or refer back are not tried. */
bool sl_quant_ignores(const struct sl_quant *quant, const struct sl_config *config, const char *module);

#endif
