/*
 * checkpoint.h - tiny checkpoints for tests of the planning half: a config.json and tensors that are kept in memory, so
 * that a test can say what an output must hold.
 *
 *      checkpoint_begin("{\"architectures\":[\"LlamaForCausalLM\"],…}");
 *      checkpoint_add("BF16", "67 20", "model.embed_tokens.weight");
 *      checkpoint_write(1);
 *      model = checkpoint_open();
 *      view = checkpoint_view(model, "vllm/tp2", 0, 1);
 *      checkpoint_expect(view, "model.embed_tokens.weight", "model.embed_tokens.weight[64:67] zeros[61]");
 *
 * Builds on fixture.h: one current checkpoint per test, in the fixture's directory; whatever fails here fails the test.
 * Elements are pseudo-random, differ between tensors, and are finite numbers between 2^-15 and 2^9.
 */
#ifndef TESTS_UNIT_CHECKPOINT_H
#define TESTS_UNIT_CHECKPOINT_H

#include "fixture.h"

#include "slicer/model.h"
#include "slicer/view.h"

struct checkpoint_tensor {
	char name[160];
	int dtype; /* enum sl_dtype */
	unsigned n_dims;
	uint64_t shape[4];
	uint64_t n, len; /* elements, bytes */
	unsigned char *bytes;
};

/* Test suites' .init and .fini: a directory; and its removal, with what the checkpoint holds. */
void checkpoint_setup(void);
void checkpoint_teardown(void);

/* A new checkpoint without tensors; NULL: without config.json. */
void checkpoint_begin(const char *config);

/* Add a tensor; the shape is numbers with spaces between them, "" for a scalar. */
void checkpoint_add(const char *dtype, const char *shape, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void checkpoint_drop(const char *name);

/* The same with other bytes: another dtype, all zero, or shape. */
void checkpoint_replace(const char *dtype, const char *shape, const char *name);
void checkpoint_zero(const char *name);

struct checkpoint_tensor *checkpoint_find(const char *name);
struct checkpoint_tensor *checkpoint_at(unsigned i); /* NULL after the last */

/* Number all F32 elements of all tensors: the first is 1000, each has its own. Returns the number after the last. */
uint32_t checkpoint_number(void);

/* Write the tensors to model.safetensors, or to that many shards with an index; or to one file of that name. */
void checkpoint_write(unsigned n_shards);
void checkpoint_write_file(const char *file);

struct sl_model *checkpoint_open(void);

/* Opening is refused with -EINVAL and a sentence that has all these parts, up to NULL. */
void checkpoint_refused(const char *part, ...) __attribute__((sentinel));

/* A view by its path, "vllm/tp2-pp2", or "airllm" of an engine without layouts; refused as above. */
struct sl_view *checkpoint_view(const struct sl_model *model, const char *path, unsigned stage, unsigned rank);
void checkpoint_view_refused(const struct sl_model *model, const char *path, const char *part, ...)
	__attribute__((sentinel));

/* The bytes of an output tensor, or of a whole file, as sl_file_read() gives them: malloc'ed. */
unsigned char *checkpoint_read(const struct sl_view *view, const struct sl_output *tensor);
unsigned char *checkpoint_read_file(const struct sl_file *file);

/* Each file read `n` times, at random places and in random lengths, gives what it gives when read from end to end. */
void checkpoint_read_randomly(const struct sl_view *view, unsigned n, uint64_t *state);

/* The file of that name, or NULL. */
const struct sl_file *checkpoint_file(const struct sl_view *view, const char *name);

/* The output is made of these parts of stored tensors of its dtype, one after another, in Python's notation for slices
 * of rows "name[2:5]", of columns "name[:,2:5]", of all "name", or rows of zeros "zeros[61]". */
void checkpoint_expect(const struct sl_view *view, const char *output, const char *parts);

/* Does some note of the model have this part? */
int checkpoint_has_note(const struct sl_model *model, const char *part);

#endif
