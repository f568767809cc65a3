/*
 * arch.h - architectures as tables: which weights a family has, what splitting means for each, what engines call them.
 *
 * An architecture is a list of stacks in the order in which an engine executes them. A stack is a set of weights, once
 * (embeddings, the final norm) or once per layer. A weight is a row: the module's name in the checkpoint, in HF's layout
 * and in an engine that fuses; its logical shape [out, in] in symbolic dimensions; which axis the ranks share.
 *
 *      llama   stack  model.               once    embed_tokens                      [vocab, hidden]  VOCAB
 *              stack  model.layers.%u.     layers  self_attn.q_proj  -> qkv_proj #0  [q, hidden]      COLUMN
 *                                                  self_attn.o_proj                  [hidden, q]      ROW
 *              …
 *
 * How a dimension divides is a property of the dimension: q by whole query heads, kv by whole kv heads (replicated when
 * there are more ranks than heads), the rest evenly. A tensor that no row matches refuses the model.
 *
 * To add an architecture: a file slicer/arch/NAME.c with the tables, and a line in arch.c.
 */
#ifndef SLICER_ARCH_H
#define SLICER_ARCH_H

#include "slicer/config.h"
#include "slicer/shards.h"
#include <stdbool.h>
#include <stdint.h>

/* Symbolic sizes of a weight's axes. */
enum sl_dim {
	SL_ANY, /* whatever the tensor has */
	SL_HIDDEN,
	SL_Q,	/* heads x head_dim */
	SL_KV,	/* kv heads x head_dim */
	SL_QKV, /* q, k and v one after another */
	SL_HEAD_DIM,
	SL_INTER,
	SL_GATE_UP, /* gate and up one after another */
	SL_VOCAB,
	SL_BY_HEADS,	/* any size, divided by whole query heads: MLA's projections, per-head parameters */
	SL_BY_GROUPS,	/* any size, divided by whole groups of an output projection (DeepSeek V4) */
	SL_GLOBAL_KV,	/* kv heads x head_dim of the layers with global attention (Gemma 4) */
	SL_INDEX_Q,	/* heads that choose what sparse attention looks at, as kv heads are divided (MiniMax M3) */
	SL_MOE_INTER,	/* of one routed expert */
	SL_MOE_GATE_UP, /* gate and up of one expert one after another */
	SL_MOE_PAIRS,	/* the same interleaved: row 2j is gate j, row 2j + 1 is up j (gpt-oss) */
	SL_LINEAR_K,	/* linear attention: key heads x their size */
	SL_LINEAR_V,
	SL_LINEAR_QKV,	   /* its q, k and v one after another */
	SL_LINEAR_HEADS,   /* one element per value head */
	SL_LINEAR_BY_KEYS, /* any size, divided by whole key heads (Qwen3-Next) */
	SL_LEADING_HEADS,  /* the same, and elements behind them that no engine loads (Kimi K3) */
	SL_N_DIMS
};

/* What the ranks share of a weight [out, in]. */
enum sl_role {
	SL_WHOLE,  /* nothing: each holds all of it */
	SL_COLUMN, /* the rows ("column-parallel"): weight and bias */
	SL_ROW, /* the columns ("row-parallel"); the bias is whole on each rank (vLLM: added on rank 0 at run time) */
	SL_EMBEDDING, /* the rows, padded with zero rows to the engine's unit */
};

/* How the rows of the stored tensor are ordered, where it is not the engine's order. */
enum sl_order {
	SL_PLAIN,
	SL_ROTARY,    /* per head, interleaved pairs instead of halves: Mistral's own wq and wk */
	SL_ROTARY_HF, /* the same, and HF's layout has it so too: Llama 4 */
	SL_GROUPED,   /* per kv head: its query heads, k, v: Falcon's query_key_value */
};

enum sl_weight_flags {
	SL_BARE = 1,	       /* the tensor's name is the module's, without ".weight" */
	SL_CONV1D = 2,	       /* stored [in, out]: GPT-2; engines that do not fuse keep it so */
	SL_OPTIONAL = 4,       /* may be absent from the checkpoint, then the engine has none either */
	SL_UNLOADED = 8,       /* known, but only `hf/` keeps it: masks, poolers; may be absent */
	SL_INDICES = 16,       /* integers 0, 1, 2, …, made when the checkpoint does not store them; dtype is kept */
	SL_IS_EMBED = 32,      /* the word embedding */
	SL_IS_HEAD = 64,       /* the output head: absent when tied */
	SL_STACKED = 128,      /* one tensor of all experts: its first axis is theirs */
	SL_PLAIN_ONLY = 256,   /* never quantised by vLLM: routers, norms' relatives */
	SL_DEQUANTISED = 1024, /* the engine holds it in the model's dtype, however it is stored */
	SL_PADDED = 2048,      /* experts whose sizes the engine rounds up for its kernel */
	SL_UNFUSED = 512,      /* a vector or matrix that is joined with others, but is no linear layer */
	SL_INSTEAD =
		8192, /* only where the row before it of the same `fused` is not stored: experts apart instead of stacked */
	SL_FLAT = 16384, /* a vector that may be stored with axes of one element around it */
	SL_AGAIN = 4096, /* a tensor of another row, which engines that fuse hold a second time: Gemma 4's k as v */
};

/* The dtype in which engines hold an unquantised weight. */
enum sl_weight_dtype {
	SL_IN_MODEL,
	SL_IN_F32, /* router biases, GLM's router: rounding them changes which experts are chosen */
	SL_IN_OWN,
	SL_IN_I32,
};

/* On which pipeline stages a weight outside the layers lives. */
enum sl_stages {
	SL_EVERY_STAGE,
	SL_FIRST_STAGE,
	SL_LAST_STAGE,
	SL_FIRST_OR_TIED_LAST, /* the first; the last too when the head is tied to it */
};

/* About one layer of a part; `layer` is 0 outside the layers. */
typedef bool sl_predicate(const struct sl_config *config, enum sl_part part, uint64_t layer);

struct sl_weight {
	const char *name;  /* module in the checkpoint, below the stack's prefix; "%e" stands for the expert */
	const char *hf;	   /* module in HF's layout; NULL: name */
	const char *fused; /* module in an engine that fuses; rows with the same one, and the same `when`, are merged in
			      * order; NULL: hf */
	enum sl_role role;
	enum sl_dim out, in; /* of a 1-D weight: out alone, in is SL_NO_AXIS */
	enum sl_order order;
	unsigned flags;
	sl_predicate *when; /* the model has this module; NULL: always */
	sl_predicate *bias; /* the module has a bias; NULL: never */
	enum sl_stages stages;
	enum sl_weight_dtype as;
	unsigned
		least; /* rows, or of a row-parallel matrix columns, that a rank's share of an expert has at least in an
			 * engine that fuses: filled up with zeros */
	unsigned pad;  /* a rank's rows in an engine that fuses: filled up with zeros to a multiple of this */
	const char *routed; /* of a shared expert: the row of the routed ones, of which it may become the last */
	const struct sl_weight *sglang; /* this row as SGLang has it; NULL: the same */
};

#define SL_NO_AXIS SL_N_DIMS

/* An attention module of vLLM's, which holds scale buffers. */
struct sl_attention {
	const char *name;   /* in a layer of the engine; NULL: none */
	const char *stored; /* in the checkpoint, under which its cache scales lie; NULL: none are */
	bool own_class;	    /* no plain Attention (MLA, sparse): few schemes give those cache scales */
	sl_predicate *when; /* which layers have it; NULL: all */
	const char *sglang; /* the modules to which SGLang gives cache scales, joined by '|'; NULL: none */
};

#define SL_ATTNS_MAX 2

struct sl_stack {
	const char *name;   /* prefix in the checkpoint; "%u" stands for the layer: then there is one set per layer */
	const char *hf;	    /* in HF's layout; NULL: name */
	const char *engine; /* in the fused engines (vLLM); NULL: hf */
	enum sl_part part;  /* whose sizes and layer count */
	bool pipelined;	    /* its layers are shared among the stages; else every stage has all */
	struct sl_attention attns[SL_ATTNS_MAX];
	const struct sl_weight *weights;
	unsigned n_weights;
};

/* Another spelling of the checkpoint's names: each `stored` prefix stands for the `canonical` one of the stacks. */
struct sl_spelling {
	struct {
		const char *canonical, *stored;
	} prefixes[4];
};

enum sl_arch_flags {
	SL_TIED_BY_DEFAULT = 1, /* tie_word_embeddings absent means true */
	SL_NO_HEAD = 2,	       /* the engine has no head of its own: always the embedding, under the embedding's name */
	SL_ENCODER = 4,	       /* embeddings, not a language model: no head; F32 becomes F16 (vLLM's pooling models) */
	SL_NO_STAGES = 8,      /* no pipeline parallelism */
	SL_NEXT_N = 64,	       /* layers beyond num_hidden_layers are drafts (MTP): engines load them apart */
	SL_EXPERT_GROUPS = 32, /* routing by n_group groups of experts: vLLM spreads no others round robin */
	SL_SGLANG_STAGES = 128, /* what SGLang's pipeline stages hold of it is known */
	SL_OWN_HEAD =
		256, /* the engine has a head of its own also where config.json ties it: then it is the embedding again */
	SL_NO_F16 = 16, /* numerically unstable in F16: vLLM refuses it and takes BF16 */
	SL_SILU = 4096, /* vLLM's class computes with that activation alone, and raises an error for another */
	SL_EXPERT_PER_RANK =
		2048, /* vLLM's class raises an error where there are more ranks than experts, sliced or not */
	SL_EXPERTS_EACH_STAGE = 1024, /* vLLM's class raises an error in a stage that has no layer with experts */
	SL_NORMALIZER = 512,	      /* SGLang has a tensor of the factor of its embeddings, sqrt(hidden) */
};

struct sl_arch {
	const char *family;		  /* for people: "Llama, Mistral, …" */
	const char *const *architectures; /* values of config.json's architectures, NULL-terminated */
	enum sl_format format;		  /* SL_FORMAT_MISTRAL: for checkpoints of that naming only */
	unsigned flags;
	const struct sl_stack *stacks;
	unsigned n_stacks;
	const struct sl_dims *defaults[SL_N_PARTS]; /* what transformers assumes when config.json does not say */
	const struct sl_spelling *spellings;	    /* beside the canonical one */
	unsigned n_spellings;
	const char *const *skipped; /* prefixes of tensors that are drafts (MTP) too; NULL-terminated, or NULL */
	const char *whole_in_hf;    /* why no config.json could describe a slice; NULL: it can */
	sl_predicate *fuses_shared; /* SGLang makes the shared expert one more routed one; NULL: it does not */
	/* A last look at the configuration, NULL when there is nothing to check: fixes up dims, refuses variants. */
	int (*prepare)(struct sl_config *config, struct sl_error *err);
};

/* The architecture of a configuration. -EINVAL with a sentence for one that is unknown, or known and refused. */
int sl_arch_find(const struct sl_arch **out, const struct sl_config *config, enum sl_format format,
		 struct sl_error *err) SL_MUST_CHECK;

/* All that work, NULL-terminated, and those that are known by name and refused: for `rankfs --list`. */
extern const struct sl_arch *const sl_archs[];
struct sl_refused_arch {
	const char *architecture, *why;
};
extern const struct sl_refused_arch sl_refused_archs[];
extern const unsigned sl_n_refused_archs;

/* Predicates that several families use. */
sl_predicate sl_always, sl_has_attention_bias, sl_has_mlp_bias, sl_has_experts, sl_has_no_experts;

/* Experts of a layer with routed ones that every token goes through: by n_shared_experts, or by num_shared_experts. */
sl_predicate sl_has_shared_experts, sl_has_num_shared_experts;

/* Qwen's hybrid layers: by layer_types, else all but every full_attention_interval-th are linear. */
sl_predicate sl_has_linear_attention, sl_has_full_attention;

/* Kimi's: by linear_attn_config.kda_layers. */
sl_predicate sl_has_delta_attention, sl_has_latent_attention;

/* Is element `layer` of a list of zeros and ones a one? */
bool sl_is_marked(const struct sl_config *config, enum sl_part part, const char *keys, uint64_t layer);

/* Is element `layer` of layer_types this one? */
bool sl_is_kind(const struct sl_config *config, enum sl_part part, uint64_t layer, const char *kind);

/* For families with linear attention: are its sizes there? */
int sl_need_linear_attention(const struct sl_config *config, struct sl_error *err) SL_MUST_CHECK;

/* transformers derives head_dim from hidden / heads. */
#define SL_HEADS_FROM_HIDDEN "it has no head_dim"

#define SL_COUNT(array) (sizeof(array) / sizeof((array)[0]))

#endif
