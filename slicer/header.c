/*
 * header.c - from 8 + N bytes to tensors that can be trusted.
 *
 * Each entry is checked by itself first (keys, dtype, shape, range, size), then all together: names are unique, and the
 * ranges in order of their offsets cover the data exactly. So every byte of a file has one owner, and nothing behind
 * this file needs to ask again whether a tensor lies where it says.
 *
 * Shapes are multiplied as the reference does, from the left: [0, 2^63] is empty, [2^63, 2, 0] wraps and is refused.
 */
#include "slicer/header.h"

#include "slicer/header_scan.h"
#include "slicer/impostor.h"
#include "slicer/json.h"
#include "slicer/sort.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { LENGTH_BYTES = 8, HEADER_DEPTH = 8, KEYS_MAX = 64 };

static uint64_t read_le64(const unsigned char *at)
{
	uint64_t value = 0;

	for (int i = LENGTH_BYTES; i-- > 0;)
		value = value << 8 | at[i];
	return value;
}

int sl_header_need(const unsigned char *head, size_t head_len, uint64_t file_size, uint64_t *need, struct sl_error *err)
{
	if (file_size == 0)
		return sl_fail(err, EINVAL, "is empty (0 bytes): download it again");
	if (file_size < LENGTH_BYTES || head_len < LENGTH_BYTES)
		return sl_fail(err, EINVAL,
			       "is too small for a safetensors file: %" PRIu64 " bytes, at least 8 are needed",
			       file_size);
	uint64_t n = read_le64(head);
	if (n <= SL_HEADER_MAX && n <= file_size - LENGTH_BYTES) {
		*need = LENGTH_BYTES + n;
		return 0;
	}
	int ret = sl_impostor_check_binary((const char *)head, head_len, err);
	if (ret)
		return ret;
	if (n > SL_HEADER_MAX)
		return sl_fail(err, EINVAL,
			       "gives its header %" PRIu64 " bytes, above the cap of %u; the file has %" PRIu64, n,
			       SL_HEADER_MAX, file_size);
	return sl_fail(err, EINVAL,
		       "gives its header %" PRIu64 " bytes (cap %u), but the file has %" PRIu64
		       ", 8 of them for the length: truncated?",
		       n, SL_HEADER_MAX, file_size);
}

/* ---- one entry ---- */

struct parse {
	struct sl_json json;
	struct sl_header_sink *sink;
	struct sl_arena *arena; /* the sink's, for names */
	uint64_t data_len;	/* bytes after the header */
	struct sl_tensor *tensors;
	uint32_t n;
	struct sl_error *err;
};

/* The tokens of an entry's values; 0: not there. */
struct entry {
	uint32_t dtype, shape, data_offsets;
};

static int no_memory(struct parse *p)
{
	return sl_fail(p->err, ENOMEM, "no memory for the header's tensors");
}

/* Text of a token as the header spells it, for a message. */
static const char *spelled(const struct parse *p, uint32_t at, struct sl_escaped *buf)
{
	const struct sl_json_token *token = &p->json.tokens[at];

	return sl_escape(buf->text, sizeof(buf->text), p->json.text + token->start, token->end - token->start);
}

/* A name that is used as a C string from here on. */
static int read_name(struct parse *p, uint32_t key, struct sl_tensor *tensor)
{
	size_t len;
	char *text = sl_json_string(&p->json, key, p->arena, &len);

	if (!text)
		return no_memory(p);
	if (strlen(text) != len)
		return sl_fail(p->err, EINVAL, "tensor '%s': a NUL in its name", SL_ESC(text));
	if (len > SL_NAME_MAX)
		return sl_fail(p->err, EINVAL, "tensor '%s': a name of %zu bytes; at most %u are accepted",
			       SL_ESC(text), len, SL_NAME_MAX);
	tensor->name = text;
	tensor->name_len = (uint16_t)len;
	return 0;
}

/* Keys that we ignore may not be there twice either. Entries have few, so each is compared with all before it. */
static int unique_keys(struct parse *p, uint32_t obj)
{
	uint32_t n = p->json.tokens[obj].n, key = sl_json_first(&p->json, obj);
	const char *keys[KEYS_MAX];

	if (n > KEYS_MAX)
		return sl_fail(p->err, EINVAL, "has %u keys; at most %d are accepted", n, KEYS_MAX);
	for (uint32_t i = 0; i < n; i++, key = sl_json_next(&p->json, key)) {
		size_t len;
		keys[i] = sl_json_string(&p->json, key, p->arena, &len);
		if (!keys[i])
			return no_memory(p);
		for (uint32_t k = 0; k < i; k++) {
			if (sl_json_equal(&p->json, key, keys[k]))
				return sl_fail(p->err, EINVAL, "key '%s' is there twice", SL_ESC(keys[k]));
		}
	}
	return 0;
}

static int find_keys(struct parse *p, uint32_t obj, struct entry *entry)
{
	uint32_t n = p->json.tokens[obj].n, key = sl_json_first(&p->json, obj);
	const struct {
		const char *name;
		uint32_t *at;
	} wanted[] = { { "dtype", &entry->dtype },
		       { "shape", &entry->shape },
		       { "data_offsets", &entry->data_offsets } };
	const size_t n_wanted = sizeof(wanted) / sizeof(wanted[0]);

	if (p->json.tokens[obj].type != SL_JSON_OBJECT)
		return sl_fail(p->err, EINVAL, "its entry is no object");
	for (uint32_t i = 0; i < n; i++, key = sl_json_next(&p->json, key)) {
		for (size_t w = 0; w < n_wanted; w++) {
			if (!sl_json_equal(&p->json, key, wanted[w].name))
				continue;
			if (*wanted[w].at)
				return sl_fail(p->err, EINVAL, "key '%s' is there twice", wanted[w].name);
			*wanted[w].at = key + 1;
		}
	}
	for (size_t w = 0; w < n_wanted; w++) {
		if (!*wanted[w].at)
			return sl_fail(p->err, EINVAL, "key '%s' is missing", wanted[w].name);
	}
	return n > n_wanted ? unique_keys(p, obj) : 0;
}

static int read_dtype(struct parse *p, uint32_t at, struct sl_tensor *tensor)
{
	const struct sl_json_token *token = &p->json.tokens[at];
	struct sl_escaped buf;

	if (token->type != SL_JSON_STRING)
		return sl_fail(p->err, EINVAL, "dtype %s is no string", spelled(p, at, &buf));
	int dtype = sl_dtype_find(p->json.text + token->start, token->end - token->start);
	for (int d = 0; dtype < 0 && d < SL_N_DTYPES; d++) {
		if (sl_json_equal(&p->json, at, sl_dtypes[d].name)) /* spelled with escapes */
			dtype = d;
	}
	if (dtype < 0)
		return sl_fail(p->err, EINVAL, "dtype '%s' is unknown", spelled(p, at, &buf));
	tensor->dtype = (uint8_t)dtype;
	return 0;
}

/* An array of whole numbers, `min` to `max` of them. */
static int read_numbers(struct parse *p, uint32_t at, const char *what, uint32_t min, uint32_t max, uint64_t *numbers)
{
	const struct sl_json_token *array = &p->json.tokens[at];
	uint32_t element = sl_json_first(&p->json, at);
	struct sl_escaped buf;

	if (array->type != SL_JSON_ARRAY)
		return sl_fail(p->err, EINVAL, "%s %s is no array", what, spelled(p, at, &buf));
	if (array->n < min || array->n > max)
		return sl_fail(p->err, EINVAL, "%s has %u numbers; %u to %u belong there", what, array->n, min, max);
	for (uint32_t i = 0; i < array->n; i++, element = sl_json_next(&p->json, element)) {
		if (sl_json_u64(&p->json, element, &numbers[i]))
			return sl_fail(p->err, EINVAL, "%s: %s is no whole number below 2^64, in plain digits", what,
				       spelled(p, element, &buf));
	}
	return 0;
}

static int read_shape(struct parse *p, uint32_t at, struct sl_tensor *tensor)
{
	uint64_t numbers[SL_DIMS_MAX];

	int ret = read_numbers(p, at, "shape", 0, SL_DIMS_MAX, numbers);
	if (ret)
		return ret;
	tensor->n_dims = (uint8_t)p->json.tokens[at].n;
	tensor->shape = sl_header_shape(p->sink, numbers, tensor->n_dims);
	return tensor->shape ? 0 : no_memory(p);
}

/* Bytes that shape and dtype ask for. */
static int shape_bytes(struct parse *p, const struct sl_tensor *tensor, uint64_t *bytes)
{
	const struct sl_dtype_row *dtype = &sl_dtypes[tensor->dtype];
	uint64_t bits = 1;
	bool wraps = false;

	for (unsigned d = 0; d < tensor->n_dims; d++)
		wraps |= __builtin_mul_overflow(bits, tensor->shape[d], &bits);
	wraps |= __builtin_mul_overflow(bits, (uint64_t)dtype->bits, &bits);
	if (wraps)
		return sl_fail(p->err, EOVERFLOW, "its shape times %u bits of %s is more than 2^64", dtype->bits,
			       dtype->name);
	if (bits % 8)
		return sl_fail(p->err, EINVAL, "%" PRIu64 " bits of %s are no whole number of bytes", bits,
			       dtype->name);
	*bytes = bits / 8;
	return 0;
}

/* .off counts from the start of the data here; check_cover() moves it. */
static int read_range(struct parse *p, uint32_t at, struct sl_tensor *tensor)
{
	uint64_t range[2], bytes = 0;

	int ret = read_numbers(p, at, "data_offsets", 2, 2, range);
	if (ret)
		return ret;
	if (range[0] > range[1])
		return sl_fail(p->err, EINVAL, "bytes [%" PRIu64 ", %" PRIu64 ") of %" PRIu64 " are no range", range[0],
			       range[1], p->data_len);
	tensor->off = range[0];
	tensor->len = range[1] - range[0];
	ret = shape_bytes(p, tensor, &bytes);
	if (!ret && bytes != tensor->len)
		ret = sl_fail(p->err, EINVAL,
			      "its shape and %s make %" PRIu64 " bytes, but [%" PRIu64 ", %" PRIu64 ") are %" PRIu64,
			      sl_dtypes[tensor->dtype].name, bytes, range[0], range[1], tensor->len);
	return ret;
}

static int read_entry(struct parse *p, uint32_t obj, struct sl_tensor *tensor)
{
	struct entry entry = { 0 };

	int ret = find_keys(p, obj, &entry);
	if (!ret)
		ret = read_dtype(p, entry.dtype, tensor);
	if (!ret)
		ret = read_shape(p, entry.shape, tensor);
	return ret ? ret : read_range(p, entry.data_offsets, tensor);
}

/* ---- the whole header ---- */

/* Absent, null, or an object of strings, as the reference has it. Nobody reads it. */
static int check_metadata(struct parse *p, uint32_t at)
{
	const struct sl_json_token *token = &p->json.tokens[at];
	uint32_t key = sl_json_first(&p->json, at);

	if (token->type == SL_JSON_NULL)
		return 0;
	if (token->type != SL_JSON_OBJECT)
		return sl_fail(p->err, EINVAL, "__metadata__ is neither an object nor null");
	for (uint32_t i = 0; i < token->n; i++, key = sl_json_next(&p->json, key)) {
		struct sl_escaped buf;
		if (p->json.tokens[key + 1].type != SL_JSON_STRING)
			return sl_fail(p->err, EINVAL, "__metadata__: the value of '%s' is no string",
				       spelled(p, key, &buf));
	}
	return 0;
}

static int read_entries(struct parse *p, uint32_t shard)
{
	uint32_t n = p->json.tokens[0].n, key = sl_json_first(&p->json, 0);
	bool metadata = false;

	p->tensors = sl_arena_array(p->sink->tensors, n, sizeof(*p->tensors));
	if (!p->tensors)
		return no_memory(p);
	for (uint32_t i = 0; i < n; i++, key = sl_json_next(&p->json, key)) {
		int ret;
		if (sl_json_equal(&p->json, key, "__metadata__")) {
			ret = metadata ? sl_fail(p->err, EINVAL, "__metadata__ is there twice")
				       : check_metadata(p, key + 1);
			metadata = true;
		} else {
			struct sl_tensor *tensor = &p->tensors[p->n++];
			tensor->shard = shard;
			ret = read_name(p, key, tensor);
			if (!ret && (ret = read_entry(p, key + 1, tensor)))
				sl_error_prefix(p->err, "tensor '%s'", SL_ESC(tensor->name));
		}
		if (ret)
			return ret;
	}
	return 0;
}

static int check_names(struct parse *p)
{
	int ret = sl_sort_tensors(p->tensors, p->n, sl_tensor_by_name, p->err);

	for (uint32_t i = 1; !ret && i < p->n; i++) {
		if (strcmp(p->tensors[i - 1].name, p->tensors[i].name) == 0)
			ret = sl_fail(p->err, EINVAL, "tensor '%s' is there twice", SL_ESC(p->tensors[i].name));
	}
	return ret;
}

/* A file that ends before its last tensor: the commonest fault of all, so it is looked for before holes and overlaps. */
static int check_length(struct parse *p, uint64_t data_off)
{
	const struct sl_tensor *last = NULL;
	uint64_t end = 0;

	for (uint32_t i = 0; i < p->n; i++) {
		if (p->tensors[i].off + p->tensors[i].len > end) {
			last = &p->tensors[i];
			end = last->off + last->len;
		}
	}
	if (end <= p->data_len)
		return 0;
	return sl_fail(p->err, EINVAL,
		       "tensor '%s' ends at byte %" PRIu64 " of the data, but the data has %" PRIu64
		       " (file of %" PRIu64 "): %" PRIu64 " bytes are missing, truncated?",
		       SL_ESC(last->name), end, p->data_len, data_off + p->data_len, end - p->data_len);
}

/* In order of their offsets, each tensor begins where the one before it ended. */
static int check_cover(struct parse *p, uint64_t data_off)
{
	uint64_t end = 0;
	int ret = sl_sort_tensors(p->tensors, p->n, sl_tensor_by_offset, p->err);

	if (ret)
		return ret;
	for (uint32_t i = 0; i < p->n; i++) {
		struct sl_tensor *t = &p->tensors[i];
		if (t->off > end)
			return sl_fail(p->err, EINVAL,
				       "tensor '%s': no tensor has bytes [%" PRIu64 ", %" PRIu64 ") before it",
				       SL_ESC(t->name), end, t->off);
		if (t->off < end)
			return sl_fail(p->err, EINVAL,
				       "tensor '%s' begins at byte %" PRIu64
				       " of the data, inside tensor '%s' that ends at %" PRIu64,
				       SL_ESC(t->name), t->off, SL_ESC(t[-1].name), end);
		end = t->off + t->len;
		t->off += data_off;
	}
	if (end < p->data_len)
		return sl_fail(p->err, EINVAL,
			       "%" PRIu64 " bytes follow the last tensor, which ends at byte %" PRIu64 " of %" PRIu64
			       " bytes of data",
			       p->data_len - end, end, p->data_len);
	return 0;
}

static int parse_tokens(struct parse *p, uint64_t data_off, uint32_t shard)
{
	if (p->json.tokens[0].type != SL_JSON_OBJECT)
		return sl_fail(p->err, EINVAL, "its header is JSON, but no object");
	int ret = read_entries(p, shard);
	if (!ret)
		ret = check_names(p);
	if (!ret)
		ret = check_length(p, data_off);
	if (!ret)
		ret = check_cover(p, data_off);
	return ret;
}

/* Any header, by its tokens. */
static int parse_json(struct parse *p, const char *text, size_t len, uint64_t data_off, uint32_t shard)
{
	int ret = sl_json_parse(&p->json, text, len, HEADER_DEPTH, p->err);

	if (ret) {
		sl_error_prefix(p->err, "its header of %zu bytes", len);
		return ret;
	}
	ret = parse_tokens(p, data_off, shard);
	sl_json_release(&p->json);
	return ret;
}

/* ---- the usual header ---- */

/* Give names memory of their own: one block of them. */
static bool keep_names(struct sl_scanned *scanned, struct sl_arena *arena)
{
	char *at = sl_arena_alloc(arena, scanned->name_bytes);

	for (uint32_t i = 0; at && i < scanned->n; i++) {
		struct sl_tensor *tensor = &scanned->tensors[i];
		memcpy(at, tensor->name, tensor->name_len);
		tensor->name = at;
		at += tensor->name_len + 1; /* the arena's bytes are zero */
	}
	return at != NULL;
}

static bool are_unique(const struct sl_tensor *tensors, uint32_t n)
{
	for (uint32_t i = 1; i < n; i++) {
		if (tensors[i - 1].name_len == tensors[i].name_len &&
		    memcmp(tensors[i - 1].name, tensors[i].name, tensors[i].name_len) == 0)
			return false;
	}
	return true;
}

static bool keep_tensors(struct parse *p, const struct sl_scanned *scanned)
{
	p->tensors = sl_arena_array(p->sink->tensors, scanned->n, sizeof(*p->tensors));
	if (p->tensors)
		memcpy(p->tensors, scanned->tensors, scanned->n * sizeof(*p->tensors));
	p->n = scanned->n;
	return p->tensors != NULL;
}

/* False where names are there twice: then its tokens tell. */
static bool take_scanned(struct parse *p, struct sl_scanned *scanned, uint64_t data_off)
{
	struct sl_error unused = SL_ERROR_INIT;

	if (!keep_names(scanned, p->arena))
		return false;
	for (uint32_t i = 0; i < scanned->n; i++)
		scanned->tensors[i].off += data_off;
	if (!scanned->by_name && (sl_sort_tensors(scanned->tensors, scanned->n, sl_tensor_by_name, &unused) ||
				  !are_unique(scanned->tensors, scanned->n)))
		return false;
	return keep_tensors(p, scanned);
}

static bool parse_usual(struct parse *p, const char *text, size_t len, uint64_t data_off, uint32_t shard)
{
	struct sl_scanned scanned;
	bool usual =
		sl_header_scan(&scanned, text, len, p->data_len, shard, p->sink) && take_scanned(p, &scanned, data_off);

	free(scanned.tensors);
	if (!usual)
		p->n = 0;
	return usual;
}

/* ---- either ---- */

/* See that all of the header is there; p->data_len is known then, and *need is 8 + N. */
static int measure(struct parse *p, const unsigned char *head, size_t head_len, uint64_t file_size, uint64_t *need)
{
	int ret = sl_header_need(head, head_len, file_size, need, p->err);

	if (ret)
		return ret;
	if (head_len < *need)
		return sl_fail(p->err, EIO, "its header has %" PRIu64 " bytes, of which only %zu could be read", *need,
			       head_len);
	p->arena = p->sink->names;
	p->data_len = file_size - *need;
	return 0;
}

int sl_header_parse(const unsigned char *head, size_t head_len, uint64_t file_size, uint32_t shard,
		    struct sl_arena *arena, struct sl_tensor **tensors, uint32_t *n_tensors, struct sl_error *err)
{
	struct sl_header_sink sink = { .names = arena, .tensors = arena };
	struct parse p = { .sink = &sink, .err = err };
	uint64_t need = 0;

	int ret = measure(&p, head, head_len, file_size, &need);
	if (!ret)
		ret = parse_json(&p, (const char *)head + LENGTH_BYTES, need - LENGTH_BYTES, need, shard);
	if (ret)
		return ret;
	*tensors = p.tensors;
	*n_tensors = p.n;
	return 0;
}

int sl_header_tensors(const unsigned char *head, size_t head_len, uint64_t file_size, uint32_t shard,
		      struct sl_header_sink *sink, struct sl_tensor **tensors, uint32_t *n_tensors, bool *plain,
		      struct sl_error *err)
{
	struct parse p = { .sink = sink, .err = err };
	uint64_t need = 0;

	int ret = measure(&p, head, head_len, file_size, &need);
	if (ret)
		return ret;
	const char *text = (const char *)head + LENGTH_BYTES;
	*plain = parse_usual(&p, text, need - LENGTH_BYTES, need, shard);
	if (!*plain)
		ret = parse_json(&p, text, need - LENGTH_BYTES, need, shard);
	if (!ret && !*plain)
		ret = sl_sort_tensors(p.tensors, p.n, sl_tensor_by_name, err);
	if (ret)
		return ret;
	*tensors = p.tensors;
	*n_tensors = p.n;
	return 0;
}
