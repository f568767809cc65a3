/*
 * fixture.c - the slow and obvious writer of safetensors files.
 */
#include "fixture.h"

#include "slicer/dtype.h"

#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[PATH_MAX / 4];

static void check(int ok, const char *what)
{
	if (!ok) {
		perror(what);
		abort();
	}
}

void fixture_open(void)
{
	const char *tmp = getenv("TMPDIR");

	snprintf(dir, sizeof(dir), "%s/rankfs-test-XXXXXX", tmp ? tmp : "/tmp");
	check(mkdtemp(dir) != NULL, dir);
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
	(void)st;
	(void)flag;
	(void)ftw;
	return remove(path);
}

void fixture_close(void)
{
	nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

const char *fixture_dir(void)
{
	return dir;
}

const char *fixture_path(const char *name)
{
	static char paths[4][PATH_MAX];
	static unsigned turn;
	char *path = paths[turn++ % 4];

	snprintf(path, PATH_MAX, "%s/%s", dir, name);
	return path;
}

static void make_parents(const char *name)
{
	char part[PATH_MAX / 2];

	for (const char *slash = strchr(name, '/'); slash; slash = strchr(slash + 1, '/')) {
		snprintf(part, sizeof(part), "%.*s", (int)(slash - name), name);
		mkdir(fixture_path(part), 0777);
	}
}

void fixture_file(const char *name, const void *bytes, size_t len)
{
	make_parents(name);
	FILE *file = fopen(fixture_path(name), "wb");

	check(file && fwrite(bytes, 1, len, file) == len && fclose(file) == 0, name);
}

void fixture_text(const char *name, const char *text)
{
	fixture_file(name, text, strlen(text));
}

void fixture_copy(const char *name, const char *data)
{
	const char *root = getenv("RANKFS_TEST_DATA");
	char path[PATH_MAX], bytes[1 << 16];

	snprintf(path, sizeof(path), "%s/%s", root ? root : "tests/unit/data", data);
	FILE *file = fopen(path, "rb");
	check(file != NULL, path);
	size_t len = fread(bytes, 1, sizeof(bytes), file);
	check(fclose(file) == 0 && len < sizeof(bytes), path);
	fixture_file(name, bytes, len);
}

unsigned char fixture_byte(const char *name, uint64_t i)
{
	uint64_t hash = 1469598103934665603u + i;

	for (; *name; name++)
		hash = (hash ^ (unsigned char)*name) * 1099511628211u;
	return (unsigned char)(hash >> 24 ^ hash >> 40 ^ i);
}

static void put_length(unsigned char *at, uint64_t n)
{
	for (int i = 0; i < 8; i++)
		at[i] = (unsigned char)(n >> 8 * i);
}

unsigned char *fixture_bytes(const char *json, size_t json_len, size_t data_len, size_t *len)
{
	unsigned char *bytes = malloc(8 + json_len + data_len);

	check(bytes != NULL, "malloc");
	put_length(bytes, json_len);
	memcpy(bytes + 8, json, json_len);
	for (size_t i = 0; i < data_len; i++)
		bytes[8 + json_len + i] = (unsigned char)i;
	*len = 8 + json_len + data_len;
	return bytes;
}

void fixture_raw(const char *name, const char *json, size_t data_len)
{
	size_t len;
	unsigned char *bytes = fixture_bytes(json, strlen(json), data_len, &len);

	fixture_file(name, bytes, len);
	free(bytes);
}

static uint64_t tensor_bytes(const struct fixture_tensor *tensor)
{
	int dtype = sl_dtype_find(tensor->dtype, strlen(tensor->dtype));
	uint64_t n = 1;

	check(dtype >= 0, tensor->dtype);
	for (unsigned d = 0; d < tensor->n_dims; d++)
		n *= tensor->shape[d];
	return sl_dtype_bytes((enum sl_dtype)dtype, n);
}

static void print_tensor(FILE *json, const struct fixture_tensor *tensor, uint64_t begin)
{
	fprintf(json, "\"%s\":{\"dtype\":\"%s\",\"shape\":[", tensor->name, tensor->dtype);
	for (unsigned d = 0; d < tensor->n_dims; d++)
		fprintf(json, "%s%" PRIu64, d ? "," : "", tensor->shape[d]);
	fprintf(json, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", begin, begin + tensor_bytes(tensor));
}

static void write_data(FILE *file, const struct fixture_tensor *tensor)
{
	uint64_t len = tensor_bytes(tensor);

	if (tensor->bytes) {
		check(fwrite(tensor->bytes, 1, len, file) == len, tensor->name);
		return;
	}
	for (uint64_t i = 0; i < len; i++)
		fputc(fixture_byte(tensor->name, i), file);
}

void fixture_tensors(const char *name, const struct fixture_tensor *tensors, size_t n)
{
	unsigned char length[8];
	uint64_t begin = 0;
	size_t json_len;
	char *text;
	FILE *json = open_memstream(&text, &json_len);

	check(json != NULL, name);
	fputc('{', json);
	for (size_t i = 0; i < n; begin += tensor_bytes(&tensors[i++])) {
		fputs(i ? "," : "", json);
		print_tensor(json, &tensors[i], begin);
	}
	fputc('}', json);
	fclose(json);
	make_parents(name);
	FILE *file = fopen(fixture_path(name), "wb");
	check(file != NULL, name);
	put_length(length, json_len);
	fwrite(length, 1, sizeof(length), file);
	fwrite(text, 1, json_len, file);
	for (size_t i = 0; i < n; i++)
		write_data(file, &tensors[i]);
	check(fclose(file) == 0, name);
	free(text);
}

void fixture_names(const char *file, ...)
{
	struct fixture_tensor tensors[16];
	size_t n = 0;
	va_list ap;

	va_start(ap, file);
	for (const char *name; (name = va_arg(ap, const char *));) {
		check(n < 16, "more than 16 tensors");
		tensors[n++] = (struct fixture_tensor){ .name = name, .dtype = "U8", .n_dims = 1, .shape = { 4 } };
	}
	va_end(ap);
	fixture_tensors(file, tensors, n);
}

void fixture_index(const char *name, ...)
{
	const char *tensor, *comma = "";
	size_t len;
	char *text;
	FILE *json = open_memstream(&text, &len);
	va_list ap;

	check(json != NULL, name);
	fputs("{\"metadata\":{},\"weight_map\":{", json);
	va_start(ap, name);
	for (; (tensor = va_arg(ap, const char *)); comma = ",") {
		const char *file = va_arg(ap, const char *);
		fprintf(json, "%s\"%s\":\"%s\"", comma, tensor, file);
	}
	va_end(ap);
	fputs("}}", json);
	fclose(json);
	fixture_file(name, text, len);
	free(text);
}
