/*
 * fixture.h - checkpoint directories for tests, built in a fresh temporary directory.
 *
 *      TestSuite(shards, .init = fixture_open, .fini = fixture_close);
 *
 * Criterion runs each test in a process of its own, so there is one current directory per test and no handle to it.
 * Names are relative to it and may have sub-directories, which are made. Whatever fails here aborts the test.
 */
#ifndef TESTS_UNIT_FIXTURE_H
#define TESTS_UNIT_FIXTURE_H

#include <stddef.h>
#include <stdint.h>

void fixture_open(void);
void fixture_close(void); /* removes the directory and all in it */

/* The directory, and the path of a name in it (in one of a few buffers that take turns). */
const char *fixture_dir(void);
const char *fixture_path(const char *name);

void fixture_file(const char *name, const void *bytes, size_t len);
void fixture_text(const char *name, const char *text);

/* A copy of tests/unit/data/`data`, found from the source tree's root or from wherever RANKFS_TEST_DATA points. */
void fixture_copy(const char *name, const char *data);

/* A tensor to be written. */
struct fixture_tensor {
	const char *name, *dtype;
	unsigned n_dims;
	uint64_t shape[4];
	const void *bytes; /* NULL: fixture_byte() of each */
};

/* Byte `i` of a tensor that was given none: differs between tensors and between places. */
unsigned char fixture_byte(const char *name, uint64_t i);

/* A valid safetensors file of those tensors, one after another. */
void fixture_tensors(const char *name, const struct fixture_tensor *tensors, size_t n);

/* The same for n names, each a U8 vector of 4 bytes: fixture_names("model.safetensors", "a", "b", NULL). */
void fixture_names(const char *file, ...) __attribute__((sentinel));

/* A file of 8 + N bytes whose JSON is as given, valid or not, then `data_len` bytes 0, 1, 2, …; the bytes themselves in
 * a malloc'ed buffer, or as a file. */
unsigned char *fixture_bytes(const char *json, size_t json_len, size_t data_len, size_t *len);
void fixture_raw(const char *name, const char *json, size_t data_len);

/* An index: pairs of tensor and file up to NULL. */
void fixture_index(const char *name, ...) __attribute__((sentinel));

#endif
