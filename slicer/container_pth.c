/*
 * container_pth.c - what torch.save() writes: a zip archive of stored entries, so that a tensor's bytes lie in it as they are.
 *
 *      consolidated/data.pkl     a pickle: {name: storage number, dtype, shape, strides}
 *      consolidated/byteorder    "little"
 *      consolidated/data/0 …     each tensor, at a multiple of 64 bytes
 *      consolidated/version      "3\n"
 *      directory
 *
 * (torch 2, caffe2/serialize/inline_container.cc, torch/serialization.py). The checksums of tensors are zero: to know them all
 * of the model would have to be read, and torch's reader is built not to look at them. `unzip -t` complains.
 */
#include "slicer/plan.h"
#include "slicer/text.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { ALIGNMENT = 64, LOCAL_SIZE = 30, BIG = 45, SMALL = 20 };

#define LIMIT_32 UINT64_C(0xFFFFFFFF)
#define ARCHIVE	 "consolidated/"

/* The storage class of each dtype. */
static const char *const storages[SL_N_DTYPES] = {
	[SL_BF16] = "BFloat16Storage",
	[SL_F16] = "HalfStorage",
	[SL_F32] = "FloatStorage",
	[SL_F64] = "DoubleStorage",
};

struct archive {
	struct sl_plan *plan;
	struct sl_file *file;
	struct sl_piece *at;	  /* where the next piece goes */
	struct sl_text directory; /* of the entries so far */
	uint32_t n_entries;
};

/* `size` bytes of a number, the lowest first. */
static void put(struct sl_text *text, uint64_t value, unsigned size)
{
	char bytes[8];

	for (unsigned i = 0; i < size; i++)
		bytes[i] = (char)(value >> (8 * i));
	sl_text_add(text, bytes, size);
}

static void put_string(struct sl_text *text, const char *string)
{
	sl_text_add(text, string, strlen(string));
}

/* ---- the pickle, protocol 2 ---- */

static void put_int(struct sl_text *text, uint64_t value)
{
	put_string(text, "\x8a\x09"); /* LONG1 of 9 bytes: the last keeps it positive */
	put(text, value, 8);
	put(text, 0, 1);
}

static void put_unicode(struct sl_text *text, const char *string)
{
	put_string(text, "X");
	put(text, strlen(string), 4);
	put_string(text, string);
}

/* _rebuild_tensor_v2(storage, 0, shape, strides, False, OrderedDict()) */
static void put_tensor(struct sl_text *text, const struct sl_output *t, uint32_t number)
{
	uint64_t strides[SL_DIMS_MAX + 1], stride = 1;
	char key[16];

	for (unsigned d = t->n_dims; d-- > 0; stride *= t->shape[d])
		strides[d] = stride;
	snprintf(key, sizeof(key), "%u", number);
	put_unicode(text, t->name);
	put_string(text, "ctorch._utils\n_rebuild_tensor_v2\n((");
	put_unicode(text, "storage");
	sl_text_printf(text, "ctorch\n%s\n", storages[t->dtype]);
	put_unicode(text, key);
	put_unicode(text, "cpu");
	put_int(text, stride);
	put_string(text, "tQ");
	put_int(text, 0);
	put_string(text, "(");
	for (unsigned d = 0; d < t->n_dims; d++)
		put_int(text, t->shape[d]);
	put_string(text, "t(");
	for (unsigned d = 0; d < t->n_dims; d++)
		put_int(text, strides[d]);
	put_string(text, "t\x89"
			 "ccollections\nOrderedDict\n)RtR");
}

static void put_pickle(struct sl_text *text, const struct sl_plan *plan)
{
	put_string(text, "\x80\x02}(");
	for (uint32_t i = 0; i < plan->n_tensors; i++)
		put_tensor(text, &plan->tensors[i], i);
	put_string(text, "u.");
}

/* ---- the archive ---- */

static uint32_t checksum(const unsigned char *bytes, size_t len)
{
	uint32_t crc = UINT32_MAX;

	for (size_t i = 0; i < len; i++) {
		crc ^= bytes[i];
		for (unsigned bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320 : 0);
	}
	return ~crc;
}

static uint64_t low_32(uint64_t value)
{
	return value < LIMIT_32 ? value : LIMIT_32;
}

/* What an entry's two headers have in common: versions to dates, checksum, sizes. */
static void put_common(struct sl_text *text, uint32_t crc, uint64_t size, bool is_big)
{
	put(text, is_big ? BIG : SMALL, 2);
	put(text, 0, 2);    /* flags */
	put(text, 0, 2);    /* stored */
	put(text, 0, 2);    /* midnight */
	put(text, 0x21, 2); /* 1980-01-01 */
	put(text, crc, 4);
	put(text, low_32(size), 4);
	put(text, low_32(size), 4);
}

/* Sizes, and in the directory the place, that do not fit into 32 bits. */
static void put_extra_64(struct sl_text *text, uint64_t size, uint64_t off)
{
	unsigned len = (size >= LIMIT_32 ? 16 : 0) + (off >= LIMIT_32 ? 8 : 0);

	if (!len)
		return;
	put(text, 1, 2);
	put(text, len, 2);
	if (size >= LIMIT_32) {
		put(text, size, 8);
		put(text, size, 8);
	}
	if (off >= LIMIT_32)
		put(text, off, 8);
}

static void put_directory_entry(struct archive *a, const char *name, uint32_t crc, uint64_t size)
{
	uint64_t off = a->file->size;
	struct sl_text extra = SL_TEXT_INIT;

	put_extra_64(&extra, size, off);
	put(&a->directory, 0x02014b50, 4);
	put(&a->directory, BIG, 2);
	put_common(&a->directory, crc, size, extra.len > 0);
	put(&a->directory, strlen(name), 2);
	put(&a->directory, extra.len, 2);
	put(&a->directory, 0, 2 + 2 + 2); /* comment, disk, attributes */
	put(&a->directory, 0, 4);
	put(&a->directory, low_32(off), 4);
	put_string(&a->directory, name);
	sl_text_add(&a->directory, extra.bytes, extra.len);
	a->directory.failed |= extra.failed;
	sl_text_release(&extra);
}

/* The header in front of an entry, which ends where its content may begin: an extra field fills it up. */
static void put_local(struct sl_text *text, const char *name, uint32_t crc, uint64_t size, uint64_t off)
{
	struct sl_text extra = SL_TEXT_INIT;

	put_extra_64(&extra, size, 0);
	uint64_t end = off + LOCAL_SIZE + strlen(name) + extra.len + 4,
		 fill = (ALIGNMENT - end % ALIGNMENT) % ALIGNMENT;
	put(text, 0x04034b50, 4);
	put_common(text, crc, size, extra.len > 0);
	put(text, strlen(name), 2);
	put(text, extra.len + 4 + fill, 2);
	put_string(text, name);
	sl_text_add(text, extra.bytes, extra.len);
	put_string(text, "FB");
	put(text, fill, 2);
	for (uint64_t i = 0; i < fill; i++)
		put_string(text, "Z");
	text->failed |= extra.failed;
	sl_text_release(&extra);
}

/* Bytes in memory at the end of the file; the text is used up. */
static int add_bytes(struct archive *a, struct sl_text *text)
{
	char *copy = text->failed ? NULL : sl_arena_strndup(&a->plan->view->arena, text->bytes, text->len);
	uint64_t len = text->len;

	sl_text_release(text);
	if (!copy)
		return sl_fail(a->plan->err, ENOMEM, "out of memory");
	*a->at++ = (struct sl_piece){
		.off = a->file->size, .len = len, .data = (const unsigned char *)copy, .op = SL_OP_DATA
	};
	a->file->size += len;
	return 0;
}

static int add_header(struct archive *a, const char *name, uint32_t crc, uint64_t size)
{
	struct sl_text local = SL_TEXT_INIT;

	put_directory_entry(a, name, crc, size);
	put_local(&local, name, crc, size, a->file->size);
	a->n_entries++;
	return add_bytes(a, &local);
}

static int add_text(struct archive *a, const char *name, struct sl_text *text)
{
	int ret = add_header(a, name, text->failed ? 0 : checksum((const unsigned char *)text->bytes, text->len),
			     text->len);

	if (!ret)
		return add_bytes(a, text);
	sl_text_release(text);
	return ret;
}

static int add_string(struct archive *a, const char *name, const char *string)
{
	struct sl_text text = SL_TEXT_INIT;

	put_string(&text, string);
	return add_text(a, name, &text);
}

static int add_tensor(struct archive *a, uint32_t number)
{
	struct sl_output *t = &a->plan->tensors[number];
	char name[64];

	snprintf(name, sizeof(name), ARCHIVE "data/%u", number);
	int ret = add_header(a, name, 0, t->len);
	if (ret)
		return ret;
	t->off = a->file->size;
	t->file = 0;
	a->at = sl_plan_lay_pieces(a->plan, &t, 1, a->at);
	a->file->size += t->len;
	a->plan->view->bytes += t->len;
	return 0;
}

/* The directory and what says where it is, in 64 bits as well. */
static int add_directory(struct archive *a)
{
	uint64_t off = a->file->size, size = a->directory.len, end = off + size, n = a->n_entries;
	struct sl_text *text = &a->directory;

	put(text, 0x06064b50, 4);
	put(text, 44, 8);
	put(text, BIG, 2);
	put(text, BIG, 2);
	put(text, 0, 8); /* disks */
	put(text, n, 8);
	put(text, n, 8);
	put(text, size, 8);
	put(text, off, 8);
	put(text, 0x07064b50, 4);
	put(text, 0, 4);
	put(text, end, 8);
	put(text, 1, 4);
	put(text, 0x06054b50, 4);
	put(text, 0, 4); /* disks */
	put(text, n < 0xFFFF ? n : 0xFFFF, 2);
	put(text, n < 0xFFFF ? n : 0xFFFF, 2);
	put(text, low_32(size), 4);
	put(text, low_32(off), 4);
	put(text, 0, 2); /* comment */
	return add_bytes(a, text);
}

static int add_all(struct archive *a)
{
	struct sl_text pickle = SL_TEXT_INIT;

	put_pickle(&pickle, a->plan);
	int ret = add_text(a, ARCHIVE "data.pkl", &pickle);
	if (!ret)
		ret = add_string(a, ARCHIVE "byteorder", "little");
	for (uint32_t i = 0; i < a->plan->n_tensors && !ret; i++)
		ret = add_tensor(a, i);
	if (!ret)
		ret = add_string(a, ARCHIVE "version", "3\n");
	return ret ? ret : add_directory(a);
}

static int lay(struct sl_plan *plan)
{
	struct sl_view *view = plan->view;
	struct archive a = { .plan = plan, .file = sl_plan_file(plan), .directory = SL_TEXT_INIT };
	/* A header for each tensor, header and text of three entries, the directory. */
	struct sl_piece *pieces =
		sl_arena_array(&view->arena, (size_t)plan->n_pieces + plan->n_tensors + 7, sizeof(*pieces));

	if (!a.file || !pieces)
		return sl_fail(plan->err, ENOMEM, "out of memory");
	a.at = pieces;
	a.file->model = plan->model;
	a.file->name = plan->engine->file_name(plan, 0, 1);
	int ret = a.file->name ? add_all(&a) : sl_fail(plan->err, ENOMEM, "out of memory");
	sl_text_release(&a.directory);
	a.file->pieces = pieces;
	a.file->n_pieces = (uint32_t)(a.at - pieces);
	view->n_weights = 1;
	return ret ? ret : sl_plan_keep_tensors(plan);
}

const struct sl_container sl_pth = { "pth", lay };
