/*
 * shards.c - from a directory to one sorted list of tensors.
 *
 *      locate.c          index.c            header.c          here
 *      which files  ->   which tensor  ->   each file's  ->   merged, sorted by name; each tensor kept once, from the
 *      are weights       in which file      tensors           file that the index gives it, or refused
 *
 * Every header is read, also of shards that nobody will need: a directory is accepted whole or not at all.
 *
 * Nearly every index gives all tensors of all files that are there, sorted. That is tried first (index_walk.c), and needs
 * no other memory than the tensors': on any other answer all is done again, step by step, which tells what is wrong.
 */
#include "slicer/shards.h"

#include "slicer/cache.h"
#include "slicer/index.h"
#include "slicer/index_walk.h"
#include "slicer/listing.h"
#include "slicer/locate.h"
#include "slicer/regular.h"
#include "slicer/sort.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FIRST_READ = 64 << 10 }; /* most headers are shorter */

/* What one opening works on. */
struct opening {
	struct sl_shards *shards;
	struct sl_located located;
	struct sl_index index;	 /* n 0: none */
	struct sl_arena scratch; /* the index's names and each shard's own list of tensors: released at the end */
	struct sl_header_sink sink;
	struct sl_run *runs;
	bool plain; /* all tensors' names are, so that an index spells them as they are */
	struct sl_arena *arena;
	struct sl_error *err;
};

static int no_memory(struct opening *o)
{
	return sl_fail(o->err, ENOMEM, "no memory for the tensors of %u shards", o->shards->n_shards);
}

void sl_note(struct sl_note **notes, struct sl_arena *arena, const char *fmt, ...)
{
	char text[1000];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	struct sl_note *note = sl_arena_alloc(arena, sizeof(*note));
	if (!note || !(note->text = sl_arena_strdup(arena, text)))
		return;
	while (*notes)
		notes = &(*notes)->next;
	*notes = note;
}

/* ---- the shards that an index names ---- */

/* Why a shard cannot even be looked into, or NULL. `buf` may hold the answer. */
static const char *absence(int dirfd, const char *name, char *buf, size_t cap)
{
	char target[128];
	struct stat st;

	if (fstatat(dirfd, name, &st, 0) == 0)
		return S_ISREG(st.st_mode) && st.st_size == 0 ? "0 bytes" : NULL;
	if (errno != ENOENT)
		return NULL; /* opening it will say more */
	ssize_t n = readlinkat(dirfd, name, target, sizeof(target));
	if (n >= 0) {
		struct sl_escaped shown;
		snprintf(buf, cap, "a dangling symlink to '%s'",
			 sl_escape(shown.text, sizeof(shown.text), target, (size_t)n));
		return buf;
	}
	snprintf(buf, cap, "%s.incomplete", name);
	return fstatat(dirfd, buf, &st, 0) == 0 ? "only its unfinished download, .incomplete" : "not there";
}

/* Weights are there, the index names others, and not one of those is. */
static bool is_stale(const struct opening *o, uint32_t n_absent)
{
	if (n_absent < o->index.n_files || o->located.n_files == 0)
		return false;
	for (uint32_t i = 0; i < o->located.n_files; i++) {
		if (sl_index_names(&o->index, o->located.files[i]))
			return false;
	}
	return true;
}

static int fail_stale(struct opening *o)
{
	struct sl_listing others = SL_LISTING_INIT;

	for (uint32_t i = 0; i < o->located.n_files; i++)
		sl_listing_add(&others, o->located.files[i], NULL);
	return sl_fail(o->err, ENOENT, "%s is stale: 0 of %u named shards exist, %u other shards found: %s",
		       o->located.index, o->index.n_files, o->located.n_files, sl_listing_text(&others));
}

static int check_named(struct opening *o)
{
	struct sl_listing absent = SL_LISTING_INIT;
	char buf[PATH_MAX];

	for (uint32_t i = 0; i < o->index.n_files; i++) {
		const char *why = absence(o->shards->dirfd, o->index.files[i], buf, sizeof(buf));
		if (why)
			sl_listing_add(&absent, o->index.files[i], why);
	}
	if (absent.n == 0)
		return 0;
	if (is_stale(o, absent.n))
		return fail_stale(o);
	return sl_fail(o->err, ENOENT, "%u of the %u shards that %s names are missing or empty: %s", absent.n,
		       o->index.n_files, o->located.index, sl_listing_text(&absent));
}

static void note_unnamed(struct opening *o)
{
	for (uint32_t i = 0; i < o->located.n_files; i++) {
		const char *name = o->located.files[i];
		unsigned total, number = sl_split_number(name, &total);
		if (sl_index_names(&o->index, name))
			continue;
		if (total)
			sl_note(&o->shards->notes, o->arena,
				"shard %u of %u, '%s', exists but is not in %s; it is not used", number, total,
				SL_ESC(name), o->located.index);
		else
			sl_note(&o->shards->notes, o->arena, "'%s' exists but is not in %s; it is not used",
				SL_ESC(name), o->located.index);
	}
}

/* ---- opening and reading headers ---- */

struct sl_identity sl_identity_of(const struct stat *st)
{
	return (struct sl_identity){ st->st_dev, st->st_ino, (uint64_t)st->st_size, sl_mtime_ns(st),
				     (int64_t)st->st_ctim.tv_sec * 1000000000 + st->st_ctim.tv_nsec };
}

static int open_shard(struct opening *o, struct sl_shard *shard)
{
	struct stat st;

	int ret = sl_regular_open(o->shards->dirfd, shard->name, &shard->fd, &st, o->err);
	if (ret) {
		sl_error_prefix(o->err, "%s", SL_ESC(shard->name));
		return ret;
	}
	shard->size = (uint64_t)st.st_size;
	shard->mtime_ns = sl_mtime_ns(&st);
	shard->identity = sl_identity_of(&st);
	return 0;
}

/* All files before any header: what is missing should not cost the reading of what is there. */
static int open_files(struct opening *o, const char **files, uint32_t n)
{
	o->shards->shards = sl_arena_array(o->arena, n, sizeof(*o->shards->shards));
	if (!o->shards->shards)
		return no_memory(o);
	for (uint32_t i = 0; i < n; i++) {
		o->shards->shards[i].name = sl_arena_strdup(o->arena, files[i]);
		if (!o->shards->shards[i].name)
			return no_memory(o);
		int ret = open_shard(o, &o->shards->shards[i]);
		if (ret)
			return ret;
		o->shards->n_shards++;
	}
	return 0;
}

/* The first bytes of a file, header and all, malloc'ed; *need is 8 + N. */
static int read_head(const struct sl_shard *shard, unsigned char **head, size_t *len, uint64_t *need,
		     struct sl_error *err)
{
	*len = shard->size < FIRST_READ ? (size_t)shard->size : FIRST_READ;
	*head = malloc(*len + 1);
	if (!*head)
		return sl_fail(err, ENOMEM, "no memory for its header");
	int ret = sl_regular_read(shard->fd, *head, 0, *len, err);
	if (!ret)
		ret = sl_header_need(*head, *len, shard->size, need, err);
	if (ret || *need <= *len)
		return ret;
	unsigned char *whole = realloc(*head, *need);
	if (!whole)
		return sl_fail(err, ENOMEM, "no memory for its header of %" PRIu64 " bytes", *need);
	*head = whole;
	ret = sl_regular_read(shard->fd, whole + *len, *len, *need - *len, err);
	*len = *need;
	return ret;
}

static int read_header(struct opening *o, uint32_t i, struct sl_run *run)
{
	struct sl_shard *shard = &o->shards->shards[i];
	unsigned char *head = NULL;
	bool plain = false;
	size_t len;

	int ret = read_head(shard, &head, &len, &shard->data_off, o->err);
	if (!ret)
		ret = sl_header_tensors(head, len, shard->size, i, &o->sink, &run->tensors, &run->n, &plain, o->err);
	free(head);
	if (ret)
		sl_error_prefix(o->err, "%s", SL_ESC(shard->name));
	o->plain &= plain;
	return ret;
}

/* Each shard's tensors, and room for all of them. */
static int read_headers(struct opening *o)
{
	struct sl_shards *shards = o->shards;
	uint32_t n = 0;

	o->plain = true;
	o->runs = sl_arena_array(&o->scratch, shards->n_shards, sizeof(*o->runs));
	int ret = o->runs ? 0 : no_memory(o);
	for (uint32_t i = 0; !ret && i < shards->n_shards; i++) {
		ret = read_header(o, i, &o->runs[i]);
		if (!ret && __builtin_add_overflow(n, o->runs[i].n, &n))
			ret = sl_fail(o->err, EOVERFLOW, "more than 2^32 tensors in %u shards", shards->n_shards);
	}
	if (ret)
		return ret;
	shards->tensors = sl_arena_array(o->arena, n, sizeof(*shards->tensors));
	return shards->tensors ? 0 : no_memory(o);
}

static int merge_runs(struct opening *o)
{
	struct sl_shards *shards = o->shards;

	shards->n_tensors = 0;
	for (uint32_t i = 0; i < shards->n_shards; i++) {
		memcpy(shards->tensors + shards->n_tensors, o->runs[i].tensors,
		       o->runs[i].n * sizeof(*shards->tensors));
		shards->n_tensors += o->runs[i].n;
	}
	return sl_sort_tensors(shards->tensors, shards->n_tensors, sl_tensor_by_name, o->err);
}

/* ---- one owner for every tensor ---- */

static int check_unique(struct opening *o)
{
	const struct sl_shards *s = o->shards;

	for (uint32_t i = 1; i < s->n_tensors; i++) {
		const struct sl_tensor *a = &s->tensors[i - 1], *b = &s->tensors[i];
		if (strcmp(a->name, b->name) == 0)
			return sl_fail(o->err, EINVAL, "tensor '%s' is in both '%s' and '%s', and no index chooses",
				       SL_ESC(a->name), SL_ESC(s->shards[a->shard].name),
				       SL_ESC(s->shards[b->shard].name));
	}
	return 0;
}

/* What the index leaves out: how many tensors, and one of them. */
struct unused {
	uint32_t n;
	struct sl_tensor first;
};

static void count_unused(struct unused *unused, const struct sl_tensor *tensor)
{
	if (unused->n++ == 0)
		unused->first = *tensor;
}

static void note_unused(struct opening *o, const struct unused *unused)
{
	if (unused->n)
		sl_note(&o->shards->notes, o->arena,
			"%u tensors are in shards that %s does not give them (the first is '%s' in '%s'); they are not used",
			unused->n, o->located.index, SL_ESC(unused->first.name),
			SL_ESC(o->shards->shards[unused->first.shard].name));
}

static void note_total(struct opening *o, bool has_total, uint64_t claimed)
{
	uint64_t total = 0;

	for (uint32_t i = 0; i < o->shards->n_tensors; i++)
		total += o->shards->tensors[i].len;
	if (has_total && claimed != total)
		sl_note(&o->shards->notes, o->arena,
			"%s gives a total_size of %" PRIu64 " bytes, its tensors have %" PRIu64, o->located.index,
			claimed, total);
}

/* Walk entries and tensors, both sorted by name, together; the tensors that the index gives stay, in place. */
static int apply_index(struct opening *o)
{
	struct sl_shards *s = o->shards;
	struct sl_listing lacking = SL_LISTING_INIT;
	struct unused unused = { 0 };
	uint32_t t = 0, kept = 0;

	for (uint32_t e = 0; e < o->index.n; e++) {
		const struct sl_index_entry *entry = &o->index.entries[e];
		uint32_t before = kept;
		int order = -1;
		for (; t < s->n_tensors && (order = strcmp(s->tensors[t].name, entry->tensor)) <= 0; t++) {
			if (order == 0 && s->tensors[t].shard == entry->shard)
				s->tensors[kept++] = s->tensors[t];
			else
				count_unused(&unused, &s->tensors[t]);
		}
		if (kept == before)
			sl_listing_add(&lacking, entry->tensor, entry->file);
	}
	for (; t < s->n_tensors; t++)
		count_unused(&unused, &s->tensors[t]);
	s->n_tensors = kept;
	if (lacking.n)
		return sl_fail(o->err, ENOENT, "%u tensors are not in the shards that %s gives them: %s", lacking.n,
			       o->located.index, sl_listing_text(&lacking));
	note_unused(o, &unused);
	note_total(o, o->index.has_total, o->index.total_size);
	return 0;
}

/* ---- open, close, find, read ---- */

static int read_index(struct opening *o)
{
	struct sl_note *notes = NULL;
	int ret = sl_index_read(&o->index, o->shards->dirfd, o->located.index, &o->scratch, &notes, o->err);

	for (; notes; notes = notes->next)
		sl_note(&o->shards->notes, o->arena, "%s", notes->text);
	return ret;
}

/* Are file names such that JSON and paths can only mean what they say? */
static bool have_usual_names(const struct sl_located *located)
{
	static const char usual[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";

	for (uint32_t i = 0; i < located->n_files; i++) {
		if (located->files[i][strspn(located->files[i], usual)])
			return false;
	}
	return true;
}

static void close_files(struct sl_shards *shards)
{
	for (uint32_t i = 0; i < shards->n_shards; i++)
		close(shards->shards[i].fd);
	shards->n_shards = 0;
}

/* An index that gives all tensors of all files that are there, sorted. False: it may still be a good one. Files and headers
 * that were read stay, where they were read without a fault. */
static bool open_agreeing(struct opening *o)
{
	struct sl_error fault = SL_ERROR_INIT, *err = o->err;
	struct sl_walked walked;
	int ret;

	if (!have_usual_names(&o->located))
		return false;
	o->err = &fault;
	ret = open_files(o, o->located.files, o->located.n_files);
	if (!ret)
		ret = read_headers(o);
	o->err = err;
	if (ret)
		close_files(o->shards);
	if (ret || !o->plain ||
	    !sl_index_walk(&walked, o->shards->dirfd, o->located.index, o->shards->shards, o->runs, o->shards->n_shards,
			   o->shards->tensors))
		return false;
	o->shards->n_tensors = walked.n;
	note_total(o, walked.has_total, walked.total_size);
	return true;
}

/* Are the files that are open those that the index names? */
static bool are_open(const struct opening *o)
{
	if (o->shards->n_shards != o->index.n_files)
		return false;
	for (uint32_t i = 0; i < o->index.n_files; i++) {
		if (strcmp(o->shards->shards[i].name, o->index.files[i]) != 0)
			return false;
	}
	return true;
}

static int open_named(struct opening *o)
{
	close_files(o->shards);
	int ret = open_files(o, o->index.files, o->index.n_files);

	return ret ? ret : read_headers(o);
}

static int open_indexed(struct opening *o)
{
	if (open_agreeing(o))
		return 0;
	int ret = read_index(o);
	if (!ret)
		ret = check_named(o);
	if (!ret && !are_open(o))
		ret = open_named(o);
	if (!ret)
		ret = merge_runs(o);
	if (!ret)
		ret = apply_index(o);
	if (!ret)
		note_unnamed(o);
	return ret;
}

static int open_unindexed(struct opening *o)
{
	int ret = open_files(o, o->located.files, o->located.n_files);

	if (!ret)
		ret = read_headers(o);
	if (!ret)
		ret = merge_runs(o);
	if (!ret)
		ret = check_unique(o);
	return ret ? ret : sl_located_check_split(&o->located, o->err);
}

static int open_directory(struct sl_shards *shards, const char *dir, struct sl_arena *arena, struct sl_error *err)
{
	*shards = (struct sl_shards){ .dir = sl_arena_strdup(arena, dir), .dirfd = -1 };
	if (!shards->dir)
		return sl_fail(err, ENOMEM, "no memory for the name of a directory");
	shards->dirfd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (shards->dirfd >= 0)
		return 0;
	if (errno == ENOENT)
		return sl_fail(err, ENOENT, "'%s': no such directory", SL_ESC(dir));
	if (errno == ENOTDIR)
		return sl_fail(err, ENOTDIR, "'%s' is a file: give the directory that holds the checkpoint",
			       SL_ESC(dir));
	return sl_fail(err, errno, "'%s' cannot be opened: %s", SL_ESC(dir), strerror(errno));
}

/* What a catalogue of the located files would be of; false when it cannot be told. */
static bool make_key(const struct opening *o, const struct sl_cache *cache, enum sl_format asked,
		     struct sl_catalogue_key *key)
{
	struct stat st;

	*key = (struct sl_catalogue_key){ .build = cache->build, .asked = asked, .located = &o->located };
	if (!o->located.index)
		return true;
	if (fstatat(o->shards->dirfd, o->located.index, &st, 0) || !S_ISREG(st.st_mode))
		return false;
	key->index = sl_identity_of(&st);
	return true;
}

static int open_located(struct opening *o)
{
	return o->located.index ? open_indexed(o) : open_unindexed(o);
}

/* From the cache, or else by reading all of it, after which the index must still be the one that was there before. */
static int open_with(struct opening *o, struct sl_cache *cache, enum sl_format asked)
{
	struct sl_catalogue_key key, after;

	if (!cache || !make_key(o, cache, asked, &key))
		return open_located(o);
	if (sl_cache_take(cache, o->shards, &key, o->arena))
		return 0;
	int ret = open_located(o);
	if (!ret && make_key(o, cache, asked, &after) && memcmp(&key.index, &after.index, sizeof(key.index)) == 0)
		sl_cache_store(cache, o->shards, &key);
	return ret;
}

int sl_shards_open(struct sl_shards *shards, const char *dir, enum sl_format format, struct sl_arena *arena,
		   struct sl_error *err)
{
	return sl_shards_open_cached(shards, dir, format, NULL, arena, err);
}

int sl_shards_open_cached(struct sl_shards *shards, const char *dir, enum sl_format format, struct sl_cache *cache,
			  struct sl_arena *arena, struct sl_error *err)
{
	struct opening o = { .shards = shards, .arena = arena, .err = err };

	sl_arena_init(&o.scratch);
	o.sink.names = arena;
	o.sink.tensors = &o.scratch;
	int ret = open_directory(shards, dir, arena, err);
	if (!ret)
		ret = sl_locate(&o.located, shards->dirfd, dir, format, arena, err);
	if (!ret) {
		shards->format = o.located.format;
		ret = open_with(&o, cache, format);
	}
	sl_arena_release(&o.scratch);
	if (ret)
		sl_shards_close(shards);
	return ret;
}

void sl_shards_close(struct sl_shards *shards)
{
	close_files(shards);
	if (shards->dirfd >= 0)
		close(shards->dirfd);
	*shards = (struct sl_shards){ .dirfd = -1 };
}

static bool is_before(const struct sl_shards *shards, uint32_t at, const char *name)
{
	return strcmp(shards->tensors[at].name, name) < 0;
}

/* What sl_shards_seek() looks for, in [first, end]. */
static uint32_t seek_between(const struct sl_shards *shards, const char *name, uint32_t first, uint32_t end)
{
	while (first < end) {
		uint32_t middle = first + (end - first) / 2;
		if (is_before(shards, middle, name))
			first = middle + 1;
		else
			end = middle;
	}
	return first;
}

uint32_t sl_shards_seek(const struct sl_shards *shards, const char *name)
{
	return seek_between(shards, name, 0, shards->n_tensors);
}

/* In doubling steps away from the hint. */
uint32_t sl_shards_seek_near(const struct sl_shards *shards, const char *name, uint32_t hint)
{
	uint32_t n = shards->n_tensors, first = hint < n ? hint : n, end = first, step = 1;

	if (first < n && is_before(shards, first, name)) {
		for (first++; step < n - first && is_before(shards, first + step - 1, name); step *= 2)
			first += step;
		end = step < n - first ? first + step - 1 : n;
	} else {
		for (; step < end && !is_before(shards, end - step, name); step *= 2)
			end -= step;
		first = step < end ? end - step + 1 : 0;
	}
	return seek_between(shards, name, first, end);
}

const struct sl_tensor *sl_shards_find(const struct sl_shards *shards, const char *name)
{
	uint32_t at = sl_shards_seek(shards, name);

	return at < shards->n_tensors && strcmp(shards->tensors[at].name, name) == 0 ? &shards->tensors[at] : NULL;
}

/* Whether the file is what it was when its header was read. */
static int check_unchanged(const struct sl_shard *shard, struct sl_error *err)
{
	struct stat st;

	if (fstat(shard->fd, &st))
		return sl_fail(err, EIO, "cannot be examined: %s", strerror(errno));
	if ((uint64_t)st.st_size != shard->size)
		return sl_fail(err, ESTALE, "changed while mounted (size was %" PRIu64 ", is %jd)", shard->size,
			       (intmax_t)st.st_size);
	if (sl_mtime_ns(&st) != shard->mtime_ns)
		return sl_fail(err, ESTALE, "changed while mounted (modified at %" PRId64 " ns, was %" PRId64 " ns)",
			       sl_mtime_ns(&st), shard->mtime_ns);
	return 0;
}

int sl_shard_read(const struct sl_shard *shard, void *buf, uint64_t off, size_t len, struct sl_error *err)
{
	struct sl_error fault = SL_ERROR_INIT;
	int read;

	if (off > shard->size || len > shard->size - off)
		read = sl_fail(&fault, EIO, "%zu bytes were asked for, the file has %" PRIu64, len, shard->size);
	else
		read = sl_regular_read(shard->fd, buf, off, len, &fault);
	/* That it changed explains that it could not be read, so it is said first. */
	int ret = check_unchanged(shard, err);
	if (!ret && read)
		ret = sl_fail(err, fault.errnum, "%s", fault.text);
	if (ret)
		sl_error_prefix(err, "%s: at byte %" PRIu64, SL_ESC(shard->name), off);
	return ret;
}
