/*
 * process.h - a plan of what an engine loads becomes one of what it holds afterwards.
 *
 *      tensors as loaded  ->  modules  ->  the choice that fits  ->  its steps, each a recipe  ->  tensors as held
 *
 * An engine's row has a list of choices: how weights of each format are processed, for which GPUs, with which kernels. What no
 * choice names is refused, and so is what a choice says is not known exactly: nothing is approximated.
 */
#ifndef SLICER_PROCESS_H
#define SLICER_PROCESS_H

#include "slicer/arch.h"
#include "slicer/layout.h"
#include "slicer/scheme.h"

#define SL_STEPS_MAX 4

enum sl_module_kind {
	SL_LINEAR,
	SL_EXPERTS,
	SL_LATENT, /* MLA's kv_b_proj */
	SL_OTHER,  /* norms, embeddings, routers: nothing is done to them */
};

/* What was planned of a module when it was loaded; w13 and w2 of experts are two of them. */
struct sl_module {
	uint32_t first, n; /* tensors of the plan */
	const struct sl_storage *storage;
	const struct sl_weight *row;
	enum sl_part part;
	uint64_t layer;
	uint64_t widths[16]; /* rows of each matrix that is fused, of this rank */
	unsigned n_widths;
	uint64_t columns; /* of this rank */
	const struct sl_quant *quant;
	unsigned finer; /* blocks of scales are this many times smaller than stored */
	bool fixed;	/* the scales of its inputs are stored */
};

/* One recipe. Names of tensors within a module, as the recipe calls them: "theirs=ours|…" for what goes in, "ours=theirs|…" for
 * what comes out; those that are not listed have the same name. */
struct sl_step {
	const char *recipe;
	const char *in, *out;
	uint64_t align;	       /* sl_post_facts.align */
	const char *backend;   /* sl_post_facts.backend */
	const char *has;       /* only where the module has a tensor of that name; NULL: always */
	bool keeps_shapes;     /* of the tensors that go in, which have the same names: the engine writes in place */
	const char *elsewhere; /* the recipe's tensors belong to the module of this name beside it; its inputs stay */
};

/* What the kernel for a module depends on. */
struct sl_asked {
	const struct sl_module *module;
	enum sl_gpu gpu;
	enum sl_kernels kernels;
	enum sl_online online;
	bool spread; /* each rank has some of the experts, whole */
	int normalises; /* do routers scale the weights of their choice to 1? 1: they do, 0: not, -1: config.json does not say */
	enum sl_dtype dtype;		/* the model's */
	const struct sl_config *config; /* NULL: it says nothing */
	uint64_t n, k;			/* rows and columns of this rank's matrix */
};

struct sl_choice {
	const char *storage; /* of which format, sl_storage.name; NULL ends the list */
	enum sl_module_kind kind;
	unsigned gpus;	  /* bits 1 << enum sl_gpu */
	unsigned kernels; /* bits 1 << enum sl_kernels */
	unsigned online;  /* bits 1 << enum sl_online; 0: only without */
	const char *says; /* the engine's own name for the kernel */
	struct sl_step steps[SL_STEPS_MAX];
	const char *drops;			    /* loaded tensors that it no longer has: "a|b" */
	bool (*when)(const struct sl_asked *asked); /* NULL: always */
	const char *refused;			    /* why not */
};

struct sl_bound;
struct sl_config;
struct sl_model;
struct sl_plan;
struct sl_engine;

/* What a row of an architecture is to who processes it. */
enum sl_module_kind sl_module_kind(const struct sl_weight *row);

/* The first of the choices that fits; NULL: none. */
const struct sl_choice *sl_choose(const struct sl_choice *choices, const struct sl_asked *asked);

/* Are scales of a bound module's inputs stored? */
bool sl_has_input_scale(const struct sl_model *model, const struct sl_bound *bound);

/* The tensors that the engine's architecture has, then processed: for sl_engine.plan. */
int sl_process_plan(struct sl_plan *plan) SL_MUST_CHECK;

/* Would every module of the model find a choice? 0 or -EINVAL with a sentence. */
int sl_process_check(const struct sl_model *model, const struct sl_engine *engine, const struct sl_layout *layout,
		     struct sl_error *err);

/* Set .kernels to the first ones with which the model can be held, where that is not said and another layout would be refused for
 * it; else leave the layout as it is. */
void sl_process_settle(const struct sl_model *model, const struct sl_engine *engine, struct sl_layout *layout);

/* manifest.json: for each tensor what was done. For sl_engine.beside. */
int sl_serve_manifest(struct sl_plan *plan) SL_MUST_CHECK;

#endif
