/*
 * catalogue.c - a key, the shards, the notes, the kinds (dtype and shape) of tensors, and then the tensors by columns:
 *
 *      taken   how much of the name is that of the one before    2 bytes each
 *      added   how much follows                                  2
 *      kind    2
 *      shard   2
 *      gap     from the end of the last tensor of that shard and dtype to this one: mostly 0    8
 *      names   what follows, all of it
 *
 * Columns of small numbers compress to little, and are read in one pass. Numbers are this machine's own: a cache does not
 * travel. All are aligned to their size.
 */
#include "slicer/catalogue.h"

#include "slicer/scan.h"

#include <stdlib.h>
#include <string.h>

enum { MOST = 65535 /* shards, and kinds */ };

static const char magic[8] = "rankfs 1";

/* ---- writing ---- */

static void put(struct sl_text *raw, const void *bytes, size_t len)
{
	static const char zeros[8];

	sl_text_add(raw, bytes, len);
	sl_text_add(raw, zeros, -len % 8);
}

static void put_u64(struct sl_text *raw, uint64_t value)
{
	put(raw, &value, sizeof(value));
}

static void put_string(struct sl_text *raw, const char *text)
{
	put_u64(raw, strlen(text));
	put(raw, text, strlen(text));
}

static void put_key(struct sl_text *raw, const struct sl_catalogue_key *key)
{
	put(raw, magic, sizeof(magic));
	put_string(raw, key->build);
	put_u64(raw, key->asked);
	put_u64(raw, key->located->format);
	put_string(raw, key->located->index ? key->located->index : "");
	put(raw, &key->index, sizeof(key->index));
	put_u64(raw, key->located->n_files);
	for (uint32_t i = 0; i < key->located->n_files; i++)
		put_string(raw, key->located->files[i]);
}

static void put_shards(struct sl_text *raw, const struct sl_shards *shards)
{
	put_u64(raw, shards->n_shards);
	for (uint32_t i = 0; i < shards->n_shards; i++) {
		put_string(raw, shards->shards[i].name);
		put(raw, &shards->shards[i].identity, sizeof(shards->shards[i].identity));
		put_u64(raw, shards->shards[i].data_off);
	}
}

static void put_notes(struct sl_text *raw, const struct sl_note *notes)
{
	uint64_t n = 0;

	for (const struct sl_note *note = notes; note; note = note->next)
		n++;
	put_u64(raw, n);
	for (const struct sl_note *note = notes; note; note = note->next)
		put_string(raw, note->text);
}

/* Columns while they are made. */
struct columns {
	uint16_t *taken, *added, *kind, *shard;
	uint64_t *gap, *ends; /* ends: of the last tensor, per shard and dtype */
	const struct sl_tensor **kinds;
	uint32_t n_kinds;
	uint16_t *buckets; /* 1 + a kind, by hash */
};

enum { N_BUCKETS = 1 << 17 };

static bool same_kind(const struct sl_tensor *a, const struct sl_tensor *b)
{
	return a->dtype == b->dtype && a->n_dims == b->n_dims &&
	       memcmp(a->shape, b->shape, a->n_dims * sizeof(*a->shape)) == 0;
}

static uint64_t hash_kind(const struct sl_tensor *tensor)
{
	uint64_t hash = tensor->dtype;

	for (unsigned d = 0; d < tensor->n_dims; d++)
		hash = (hash ^ tensor->shape[d]) * UINT64_C(0x9E3779B97F4A7C15);
	return (hash * UINT64_C(0x9E3779B97F4A7C15)) >> 32;
}

/* The number of a tensor's kind, a new one where it is the first; MOST when there are too many. */
static uint16_t kind_of(struct columns *c, const struct sl_tensor *tensor)
{
	uint64_t at = hash_kind(tensor) & (N_BUCKETS - 1);

	for (; c->buckets[at]; at = (at + 1) & (N_BUCKETS - 1)) {
		if (same_kind(c->kinds[c->buckets[at] - 1], tensor))
			return c->buckets[at] - 1;
	}
	if (c->n_kinds == MOST)
		return MOST;
	c->kinds[c->n_kinds++] = tensor;
	c->buckets[at] = (uint16_t)c->n_kinds;
	return (uint16_t)(c->n_kinds - 1);
}

static uint16_t in_common(const struct sl_tensor *a, const struct sl_tensor *b)
{
	return (uint16_t)sl_in_common(a->name, b->name, a->name_len < b->name_len ? a->name_len : b->name_len);
}

static bool fill_columns(struct columns *c, const struct sl_shards *shards, struct sl_text *names)
{
	for (uint32_t i = 0; i < shards->n_tensors; i++) {
		const struct sl_tensor *t = &shards->tensors[i];
		uint64_t *end = &c->ends[t->shard * (size_t)SL_N_DTYPES + t->dtype];
		c->taken[i] = i ? in_common(t - 1, t) : 0;
		c->added[i] = (uint16_t)(t->name_len - c->taken[i]);
		c->shard[i] = (uint16_t)t->shard;
		c->kind[i] = kind_of(c, t);
		if (c->kind[i] == MOST)
			return false;
		c->gap[i] = t->off - *end;
		*end = t->off + t->len;
		sl_text_add(names, t->name + c->taken[i], c->added[i]);
	}
	return true;
}

static void put_kinds(struct sl_text *raw, const struct columns *c)
{
	put_u64(raw, c->n_kinds);
	for (uint32_t i = 0; i < c->n_kinds; i++) {
		put_u64(raw, c->kinds[i]->dtype);
		put_u64(raw, c->kinds[i]->n_dims);
		put(raw, c->kinds[i]->shape, c->kinds[i]->n_dims * sizeof(uint64_t));
	}
}

static void put_columns(struct sl_text *raw, const struct columns *c, uint32_t n, const struct sl_text *names)
{
	const uint16_t *const narrow[] = { c->taken, c->added, c->kind, c->shard };

	put_u64(raw, n);
	put_u64(raw, names->len);
	for (size_t i = 0; i < sizeof(narrow) / sizeof(narrow[0]); i++)
		put(raw, narrow[i], n * sizeof(uint16_t));
	put(raw, c->gap, n * sizeof(uint64_t));
	put(raw, names->bytes, names->len);
}

static bool take_room(struct columns *c, const struct sl_shards *shards, struct sl_arena *arena)
{
	uint16_t **const narrow[] = { &c->taken, &c->added, &c->kind, &c->shard };
	bool ok = true;

	for (size_t i = 0; i < sizeof(narrow) / sizeof(narrow[0]); i++)
		ok &= (*narrow[i] = sl_arena_array(arena, shards->n_tensors, sizeof(uint16_t))) != NULL;
	c->gap = sl_arena_array(arena, shards->n_tensors, sizeof(*c->gap));
	c->ends = sl_arena_array(arena, (size_t)shards->n_shards * SL_N_DTYPES, sizeof(*c->ends));
	c->kinds = sl_arena_array(arena, MOST, sizeof(struct sl_tensor *));
	c->buckets = sl_arena_array(arena, N_BUCKETS, sizeof(*c->buckets));
	return ok && c->gap && c->ends && c->kinds && c->buckets;
}

bool sl_catalogue_write(struct sl_text *raw, const struct sl_catalogue_key *key, const struct sl_shards *shards)
{
	struct sl_text names = SL_TEXT_INIT;
	struct columns columns = { 0 };
	struct sl_arena arena;

	if (shards->n_shards > MOST)
		return false;
	sl_arena_init(&arena);
	bool ok = take_room(&columns, shards, &arena) && fill_columns(&columns, shards, &names) && !names.failed;
	if (ok) {
		put_key(raw, key);
		put_shards(raw, shards);
		put_notes(raw, shards->notes);
		put_kinds(raw, &columns);
		put_columns(raw, &columns, shards->n_tensors, &names);
	}
	sl_text_release(&names);
	sl_arena_release(&arena);
	return ok && !raw->failed;
}

/* ---- reading ---- */

struct reading {
	const unsigned char *at;
	size_t left;
	struct sl_arena *arena;
	struct sl_shards *shards;
};

/* The next `n` elements of `size` bytes, and the padding behind them. NULL when they are not there. */
static const void *get(struct reading *r, uint64_t n, size_t size)
{
	const void *at = r->at;
	uint64_t len;

	if (__builtin_mul_overflow(n, size, &len) || len > r->left || -len % 8 > r->left - len)
		return NULL;
	len += -len % 8;
	r->at += len;
	r->left -= len;
	return at;
}

static bool get_u64(struct reading *r, uint64_t *value)
{
	const void *at = get(r, 1, sizeof(*value));

	if (at)
		memcpy(value, at, sizeof(*value));
	return at != NULL;
}

static const char *get_string(struct reading *r, uint64_t *len)
{
	return get_u64(r, len) ? get(r, *len, 1) : NULL;
}

/* Is the next one that string, those bytes, that number? */
static bool is_string(struct reading *r, const char *text)
{
	uint64_t len;
	const char *at = get_string(r, &len);

	return at && len == strlen(text) && memcmp(at, text, len) == 0;
}

static bool is_bytes(struct reading *r, const void *bytes, size_t len)
{
	const void *at = get(r, len, 1);

	return at && memcmp(at, bytes, len) == 0;
}

static bool is_u64(struct reading *r, uint64_t value)
{
	return is_bytes(r, &value, sizeof(value));
}

/* A copy of a string that has no NUL. */
static const char *keep_string(struct reading *r)
{
	uint64_t len;
	const char *at = get_string(r, &len);

	return at && len <= SL_NAME_MAX && !memchr(at, '\0', len) ? sl_arena_strndup(r->arena, at, len) : NULL;
}

static bool is_key(struct reading *r, const struct sl_catalogue_key *key)
{
	const struct sl_located *located = key->located;

	if (!is_bytes(r, magic, sizeof(magic)) || !is_string(r, key->build) || !is_u64(r, key->asked) ||
	    !is_u64(r, located->format) || !is_string(r, located->index ? located->index : "") ||
	    !is_bytes(r, &key->index, sizeof(key->index)) || !is_u64(r, located->n_files))
		return false;
	for (uint32_t i = 0; i < located->n_files; i++) {
		if (!is_string(r, located->files[i]))
			return false;
	}
	return true;
}

static bool get_shard(struct reading *r, struct sl_shard *shard)
{
	const struct sl_identity *identity;

	shard->fd = -1;
	shard->name = keep_string(r);
	if (!shard->name || !(identity = get(r, 1, sizeof(*identity))) || !get_u64(r, &shard->data_off))
		return false;
	memcpy(&shard->identity, identity, sizeof(*identity));
	shard->size = shard->identity.size;
	shard->mtime_ns = shard->identity.mtime_ns;
	return shard->data_off <= shard->size;
}

static bool get_shards(struct reading *r)
{
	uint64_t n;

	if (!get_u64(r, &n) || n == 0 || n > MOST)
		return false;
	r->shards->shards = sl_arena_array(r->arena, n, sizeof(*r->shards->shards));
	for (uint64_t i = 0; r->shards->shards && i < n; i++) {
		if (!get_shard(r, &r->shards->shards[i]))
			return false;
	}
	r->shards->n_shards = (uint32_t)n;
	return r->shards->shards != NULL;
}

static bool get_notes(struct reading *r)
{
	uint64_t n;

	if (!get_u64(r, &n))
		return false;
	for (uint64_t i = 0; i < n; i++) {
		const char *text = keep_string(r);
		if (!text)
			return false;
		sl_note(&r->shards->notes, r->arena, "%s", text);
	}
	return true;
}

/* A tensor of each kind: its dtype, shape and length. */
static bool get_kind(struct reading *r, struct sl_tensor *kind)
{
	uint64_t dtype, n_dims, bits;
	const uint64_t *dims;

	if (!get_u64(r, &dtype) || !get_u64(r, &n_dims) || dtype >= SL_N_DTYPES || n_dims > SL_DIMS_MAX ||
	    !(dims = get(r, n_dims, sizeof(*dims))))
		return false;
	uint64_t *shape = sl_arena_array(r->arena, n_dims, sizeof(*shape));
	if (!shape)
		return false;
	memcpy(shape, dims, n_dims * sizeof(*shape));
	bits = sl_dtypes[dtype].bits;
	for (uint64_t d = 0; d < n_dims; d++) {
		if (__builtin_mul_overflow(bits, shape[d], &bits))
			return false;
	}
	*kind = (struct sl_tensor){
		.shape = shape, .len = bits / 8, .dtype = (uint8_t)dtype, .n_dims = (uint8_t)n_dims
	};
	return bits % 8 == 0;
}

static bool get_kinds(struct reading *r, struct sl_arena *scratch, struct sl_tensor **kinds, uint64_t *n)
{
	if (!get_u64(r, n) || *n > MOST)
		return false;
	*kinds = sl_arena_array(scratch, *n, sizeof(**kinds));
	for (uint64_t i = 0; *kinds && i < *n; i++) {
		if (!get_kind(r, &(*kinds)[i]))
			return false;
	}
	return *kinds != NULL;
}

/* Columns while they are read. */
struct reader {
	const uint16_t *taken, *added, *kind, *shard;
	const uint64_t *gap;
	const char *names;
	uint64_t n, names_left;
	const struct sl_tensor *kinds;
	uint64_t n_kinds, *ends;
};

static bool get_columns(struct reading *r, struct reader *c)
{
	if (!get_u64(r, &c->n) || !get_u64(r, &c->names_left) || c->n > UINT32_MAX)
		return false;
	c->taken = get(r, c->n, sizeof(*c->taken));
	c->added = c->taken ? get(r, c->n, sizeof(*c->added)) : NULL;
	c->kind = c->added ? get(r, c->n, sizeof(*c->kind)) : NULL;
	c->shard = c->kind ? get(r, c->n, sizeof(*c->shard)) : NULL;
	c->gap = c->shard ? get(r, c->n, sizeof(*c->gap)) : NULL;
	c->names = c->gap ? get(r, c->names_left, 1) : NULL;
	return c->names && r->left == 0 && !memchr(c->names, '\0', c->names_left);
}

/* Bytes of all names, each with a NUL. */
static uint64_t sum_names(const struct reader *c)
{
	uint64_t bytes = 0;

	for (uint64_t i = 0; i < c->n; i++)
		bytes += (uint64_t)c->taken[i] + c->added[i] + 1;
	return bytes;
}

/* The name: behind that of the tensor before it, from which it takes its beginning. */
static bool read_name(struct reader *c, uint64_t i, struct sl_tensor *t, char *at)
{
	const struct sl_tensor *before = i ? t - 1 : NULL;
	size_t taken = c->taken[i], added = c->added[i], had = before ? before->name_len : 0;

	if (taken > had || added > c->names_left || taken + added > SL_NAME_MAX)
		return false;
	/* It goes on with a greater byte where it departs, or is longer: names are sorted, and none is there twice. */
	if (i > 0 && (added == 0 || (taken < had && (unsigned char)c->names[0] <= (unsigned char)before->name[taken])))
		return false;
	if (taken)
		memcpy(at, before->name, taken);
	memcpy(at + taken, c->names, added);
	at[taken + added] = '\0';
	c->names += added;
	c->names_left -= added;
	t->name = at;
	t->name_len = (uint16_t)(taken + added);
	return true;
}

static bool read_place(const struct reader *c, uint64_t i, const struct sl_shards *shards, struct sl_tensor *t)
{
	uint64_t *end = &c->ends[t->shard * (size_t)SL_N_DTYPES + t->dtype];
	const struct sl_shard *shard = &shards->shards[t->shard];

	t->off = *end + c->gap[i];
	*end = t->off + t->len;
	return t->off >= shard->data_off && t->off <= shard->size && t->len <= shard->size - t->off;
}

static bool read_tensors(struct reading *r, struct reader *c)
{
	struct sl_shards *shards = r->shards;
	char *at = sl_arena_alloc(r->arena, sum_names(c));

	shards->tensors = sl_arena_array(r->arena, c->n, sizeof(*shards->tensors));
	if (!at || !shards->tensors)
		return false;
	for (uint64_t i = 0; i < c->n; i++) {
		struct sl_tensor *t = &shards->tensors[i];
		if (c->kind[i] >= c->n_kinds || c->shard[i] >= shards->n_shards)
			return false;
		*t = c->kinds[c->kind[i]];
		t->shard = c->shard[i];
		if (!read_name(c, i, t, at) || !read_place(c, i, shards, t))
			return false;
		at += t->name_len + 1;
	}
	shards->n_tensors = (uint32_t)c->n;
	return c->names_left == 0;
}

bool sl_catalogue_read(struct sl_shards *shards, const struct sl_catalogue_key *key, const unsigned char *raw,
		       size_t len, struct sl_arena *arena)
{
	struct reading r = { raw, len, arena, shards };
	struct sl_arena scratch;
	struct sl_tensor *kinds;
	struct reader c = { 0 };

	sl_arena_init(&scratch);
	bool good = is_key(&r, key) && get_shards(&r) && get_notes(&r) && get_kinds(&r, &scratch, &kinds, &c.n_kinds) &&
		    get_columns(&r, &c);
	if (good) {
		c.kinds = kinds;
		c.ends = sl_arena_array(&scratch, (size_t)shards->n_shards * SL_N_DTYPES, sizeof(*c.ends));
		good = c.ends && read_tensors(&r, &c);
	}
	sl_arena_release(&scratch);
	if (!good) {
		shards->shards = NULL;
		shards->tensors = NULL;
		shards->notes = NULL;
		shards->n_shards = shards->n_tensors = 0;
	}
	return good;
}
