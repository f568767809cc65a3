/*
 * header_scan.c - see header_scan.h. A name mostly repeats most of the one before it: what is equal needs no second look,
 * and where it ceases to be tells which of the two comes first.
 */
#include "slicer/header_scan.h"

#include "slicer/scan.h"

#include <stdlib.h>
#include <string.h>

#define TEXT(literal) literal, sizeof(literal) - 1

struct reading {
	struct sl_scan scan;
	struct sl_scanned *out;
	struct sl_header_sink *sink;
	uint64_t data_len, end; /* of the data: all of it, and what the tensors so far have */
	uint32_t shard;
	uint8_t dtype; /* the last one */
	bool metadata; /* has been seen */
};

const uint64_t *sl_header_shape(struct sl_header_sink *sink, const uint64_t *dims, unsigned n)
{
	uint64_t hash = n;

	for (unsigned d = 0; d < n; d++)
		hash = (hash ^ dims[d]) * UINT64_C(0x9E3779B97F4A7C15);
	struct sl_seen_shape *seen = &sink->seen[hash >> 32 & (SL_SEEN_SHAPES - 1)];
	if (seen->dims && seen->n == n && memcmp(seen->dims, dims, n * sizeof(*dims)) == 0)
		return seen->dims;
	uint64_t *copy = sl_arena_array(sink->names, n, sizeof(*copy));
	if (!copy)
		return NULL;
	memcpy(copy, dims, n * sizeof(*dims));
	*seen = (struct sl_seen_shape){ copy, n };
	return copy;
}

/* The name up to its quote, which the cursor is left behind. */
static bool scan_name(struct reading *r, struct sl_tensor *tensor, const struct sl_tensor *before)
{
	const char *name = r->scan.at;
	size_t left = (size_t)(r->scan.end - name), had = before ? before->name_len : 0;
	size_t same = before ? sl_in_common(name, before->name, had < left ? had : left) : 0;

	r->scan.at = sl_skip_plain(name + same, r->scan.end);
	size_t len = (size_t)(r->scan.at - name);
	if (r->scan.at == r->scan.end || *r->scan.at != '"' || len > SL_NAME_MAX ||
	    (before && same == len && len == had))
		return false;
	r->scan.at++;
	tensor->name = name;
	tensor->name_len = (uint16_t)len;
	r->out->name_bytes += len + 1;
	/* ASCII: chars are in the order of bytes. */
	if (same < had && (same == len || name[same] < before->name[same]))
		r->out->by_name = false;
	return true;
}

/* Mostly that of the tensor before. */
static bool scan_dtype(struct reading *r, struct sl_tensor *tensor)
{
	const char *guess = sl_dtypes[r->dtype].name, *text;
	size_t len;

	if (!sl_scan_string(&r->scan, &text, &len))
		return false;
	int dtype = strncmp(guess, text, len) == 0 && !guess[len] ? r->dtype : sl_dtype_find(text, len);
	tensor->dtype = r->dtype = (uint8_t)dtype;
	return dtype >= 0;
}

static bool scan_shape(struct reading *r, struct sl_tensor *tensor, uint64_t *bits)
{
	uint64_t dims[SL_DIMS_MAX];
	unsigned n = 0;

	if (!sl_scan_char(&r->scan, '['))
		return false;
	*bits = sl_dtypes[tensor->dtype].bits;
	while (!sl_scan_char(&r->scan, ']')) {
		if (n == SL_DIMS_MAX || (n && !sl_scan_char(&r->scan, ',')) || !sl_scan_u64(&r->scan, &dims[n]) ||
		    __builtin_mul_overflow(*bits, dims[n], bits))
			return false;
		n++;
	}
	tensor->n_dims = (uint8_t)n;
	tensor->shape = sl_header_shape(r->sink, dims, n);
	return tensor->shape != NULL;
}

/* Each tensor's bytes follow those of the one before it; of several empty ones the order is not told here. */
static bool scan_range(struct reading *r, struct sl_tensor *tensor, uint64_t bits)
{
	uint64_t first, end;

	if (!sl_scan_char(&r->scan, '[') || !sl_scan_u64(&r->scan, &first) || !sl_scan_char(&r->scan, ',') ||
	    !sl_scan_u64(&r->scan, &end) || !sl_scan_char(&r->scan, ']'))
		return false;
	if (first != r->end || end <= first || bits % 8 || bits / 8 != end - first)
		return false;
	tensor->off = first;
	tensor->len = end - first;
	r->end = end;
	return true;
}

static bool scan_entry(struct reading *r, struct sl_tensor *tensor)
{
	struct sl_scan *s = &r->scan;
	uint64_t bits;

	return sl_scan_char(s, '{') && sl_scan_text(s, TEXT("\"dtype\"")) && sl_scan_char(s, ':') &&
	       scan_dtype(r, tensor) && sl_scan_char(s, ',') && sl_scan_text(s, TEXT("\"shape\"")) &&
	       sl_scan_char(s, ':') && scan_shape(r, tensor, &bits) && sl_scan_char(s, ',') &&
	       sl_scan_text(s, TEXT("\"data_offsets\"")) && sl_scan_char(s, ':') && scan_range(r, tensor, bits) &&
	       sl_scan_char(s, '}');
}

/* An object of strings, once. */
static bool scan_metadata(struct reading *r)
{
	const char *text;
	size_t len;

	if (r->metadata || !sl_scan_char(&r->scan, ':') || !sl_scan_char(&r->scan, '{'))
		return false;
	r->metadata = true;
	for (unsigned n = 0; !sl_scan_char(&r->scan, '}'); n++) {
		if ((n && !sl_scan_char(&r->scan, ',')) || !sl_scan_string(&r->scan, &text, &len) ||
		    !sl_scan_char(&r->scan, ':') || !sl_scan_string(&r->scan, &text, &len))
			return false;
	}
	return true;
}

static struct sl_tensor *room_for_one(struct sl_scanned *out)
{
	if (out->n == out->room) {
		uint32_t room = out->room ? out->room * 2 : 1024;
		struct sl_tensor *grown = reallocarray(out->tensors, room, sizeof(*grown));
		if (!grown)
			return NULL;
		out->tensors = grown;
		out->room = room;
	}
	return &out->tensors[out->n];
}

static bool scan_member(struct reading *r)
{
	struct sl_scanned *out = r->out;

	if (sl_scan_text(&r->scan, TEXT("\"__metadata__\"")))
		return scan_metadata(r);
	struct sl_tensor *tensor = room_for_one(out);
	if (!tensor || !sl_scan_char(&r->scan, '"'))
		return false;
	*tensor = (struct sl_tensor){ .shard = r->shard };
	if (!scan_name(r, tensor, out->n ? tensor - 1 : NULL) || !sl_scan_char(&r->scan, ':') || !scan_entry(r, tensor))
		return false;
	out->n++;
	return true;
}

bool sl_header_scan(struct sl_scanned *scanned, const char *text, size_t len, uint64_t data_len, uint32_t shard,
		    struct sl_header_sink *sink)
{
	struct reading r = { { text, text + len }, scanned, sink, data_len, 0, shard, 0, false };

	*scanned = (struct sl_scanned){ .by_name = true };
	if (!sl_scan_char(&r.scan, '{'))
		return false;
	do {
		if (!scan_member(&r))
			return false;
	} while (sl_scan_char(&r.scan, ','));
	if (!sl_scan_char(&r.scan, '}'))
		return false;
	sl_scan_space(&r.scan);
	return r.scan.at == r.scan.end && r.end == data_len;
}
