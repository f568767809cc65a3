/*
 * family.h - what each model family stores and what vLLM makes of it, written down a second time: from the prose of
 * the engine's loaders, one row a tensor, biases too, without any of the slicer's notions. twin.c computes from these
 * rows, element by element, what an output must hold.
 *
 * Sizes are letters, in shapes and in config.json ($H):
 *
 *      L layers   H hidden    N heads   M kv heads      D head_dim   Q = N·D   K = M·D
 *      V vocab    P positions I inter   T = Q + 2K      G = 2I
 *
 * and of families with experts (J rows in each of E) and latent attention:
 *
 *      E experts  J inter of one        S of the shared ones       B layers without any
 *      A q rank   C kv rank   R = C + rotary   U = N·(nope + rotary)   W = N·(nope + v)   O = N·v
 */
#ifndef TESTS_UNIT_FAMILY_H
#define TESTS_UNIT_FAMILY_H

#include <stdbool.h>
#include <stdint.h>

struct sizes {
	unsigned L, H, N, M, D, I, V, P;
};

/* Rotary and other dimensions of a head of latent attention. */
struct more_sizes {
	unsigned E, J, S, B, A, C, rotary, nope, v;
};

enum share {
	WHOLE,
	ROWS,	  /* evenly */
	COLUMNS,  /* evenly */
	KV_ROWS,  /* by kv head, replicated */
	QKV_ROWS, /* q, k and v in one tensor */
	HALVES,	  /* gate and up in one tensor */
	PADDED,	  /* padded to 64 rows, then evenly */
	VOCAB,	  /* the same, and in hf/ evenly if that divides */
};

enum stored {
	AS_IS,
	TURNED, /* [in, out] */
	PAIRS,	/* rows of each head as interleaved pairs */
	GROUPS, /* per kv head: its query heads, k, v */
};

enum place { EVERYWHERE, FIRST, LAST };

enum kind { PLAIN, EMBED, HEAD, VISION };

enum layers { ALL, DENSE, SPARSE }; /* SPARSE: with experts */

struct family_row {
	const char *name; /* stored; "%u" is the layer, "%e" the expert */
	const char *shape;
	const char
		*vllm;	/* the tensor that holds it; rows with the same one are merged; "": the same name; NULL: none */
	const char *hf; /* NULL: the same name */
	enum share share;
	enum stored stored;
	enum place place;
	enum kind kind;
	const char *dtype; /* NULL: the checkpoint's */
	enum layers layers;
	bool in_f32; /* vLLM holds it so */
};

struct family {
	const char *name;
	const char *config;
	struct sizes sizes;
	const struct family_row *rows;
	unsigned n_rows;
	const char *attn;      /* vLLM's attention module; "%u" is the layer */
	const char *tied_head; /* the name of the embedding in vLLM when it is the head too; NULL: its own */
	const char *file;      /* of the weights */
	bool slices_as_hf;     /* hf/ above tp 1 */
	bool stages;
	bool untied; /* its head is never the embedding */
	struct more_sizes more;
};

extern const struct family families[];
extern const unsigned n_families;

const struct family *family_find(const char *name);

/* Begin the checkpoint of a family in some sizes and dtype; `members` is text for config.json, ",\"key\":value" each.
 * It has a head unless `tied`; writing it is left to the test. */
void family_build(const struct family *family, const struct sizes *sizes, const char *dtype, const char *torch_dtype,
		  bool tied, const char *members);

/* The same with the family's sizes, then written and opened. */
struct sl_model *family_open(const struct family *family, const char *dtype, const char *torch_dtype, bool tied);

/* "model.layers.%u.x" with the layer filled in, and the first expert; or another. */
const char *family_name(const char *name, unsigned layer, char out[200]);
const char *family_expert_name(const char *name, unsigned layer, unsigned expert, char out[200]);

/* Modules of a row in a layer, of which there are none in some layers; and layers that have any, from the first on. */
unsigned family_experts(const struct family *family, const struct family_row *row);
bool family_has(const struct family *family, const struct family_row *row, unsigned layer);
unsigned family_layers(const struct family *family, const struct family_row *row);

#endif
