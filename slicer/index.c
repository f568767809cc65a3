/*
 * index.c - an index is somebody else's text: every file name in it is checked to stay in the directory before anything
 * is opened, and whatever is malformed is refused with its place, never skipped in favour of guessing.
 */
#include "slicer/index.h"

#include "slicer/impostor.h"
#include "slicer/json.h"
#include "slicer/regular.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { INDEX_DEPTH = 32 };

struct parse {
	struct sl_json json;
	struct sl_index *index;
	struct sl_arena *arena;
	struct sl_note **notes;
	struct sl_error *err;
};

static int no_memory(struct parse *p)
{
	return sl_fail(p->err, ENOMEM, "no memory for its entries");
}

/* ---- file names ---- */

/* Why `path` of `len` bytes may not name a shard, or NULL. Sub-directories are fine. */
static const char *path_fault(const char *path, size_t len)
{
	if (len == 0)
		return "is empty";
	if (strlen(path) != len)
		return "has a NUL in it";
	if (path[0] == '/')
		return "is absolute";
	if (strchr(path, '\\'))
		return "has a backslash in it";
	if (isalpha((unsigned char)path[0]) && path[1] == ':')
		return "begins with a drive letter";
	for (const char *part = path;; part++) {
		size_t n = strcspn(part, "/");
		if (n == 2 && memcmp(part, "..", 2) == 0)
			return "has a '..' in it";
		if (n == 0 || (n == 1 && *part == '.'))
			return "has an empty or '.' component";
		part += n;
		if (!*part)
			return NULL;
	}
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The distinct file names, sorted, and each entry's place among them. */
static int collect_files(struct parse *p)
{
	struct sl_index *index = p->index;
	uint32_t n = 0;

	index->files = sl_arena_array(p->arena, index->n, sizeof(*index->files));
	if (!index->files)
		return no_memory(p);
	/* Entries that follow each other mostly name the same file, and then share its string. */
	for (uint32_t i = 0; i < index->n; i++) {
		if (i == 0 || index->entries[i].file != index->entries[i - 1].file)
			index->files[n++] = index->entries[i].file;
	}
	qsort(index->files, n, sizeof(*index->files), by_text);
	for (uint32_t i = 0; i < n; i++) {
		if (i == 0 || strcmp(index->files[index->n_files - 1], index->files[i]) != 0)
			index->files[index->n_files++] = index->files[i];
	}
	for (uint32_t i = 0; i < index->n; i++) {
		struct sl_index_entry *entry = &index->entries[i];
		const char **at = bsearch(&entry->file, index->files, index->n_files, sizeof(*at), by_text);
		entry->shard = (uint32_t)(at - index->files);
		entry->file = *at;
	}
	return 0;
}

/* ---- weight_map ---- */

/* A key or a file name, as a C string; *len may show a NUL inside. */
static int read_string(struct parse *p, uint32_t at, const char **text, size_t *len)
{
	*text = sl_json_string(&p->json, at, p->arena, len);
	return *text ? 0 : no_memory(p);
}

static int read_file(struct parse *p, uint32_t at, struct sl_index_entry *entry)
{
	size_t len;

	if (p->json.tokens[at].type != SL_JSON_STRING)
		return sl_fail(p->err, EINVAL, "weight_map: the value of '%s' (byte %u) is no string",
			       SL_ESC(entry->tensor), p->json.tokens[at].start);
	int ret = read_string(p, at, &entry->file, &len);
	if (ret)
		return ret;
	const char *fault = path_fault(entry->file, len);
	if (fault)
		return sl_fail(p->err, EINVAL,
			       "weight_map: the file '%s' of tensor '%s' %s: only files below the "
			       "checkpoint's directory are opened",
			       SL_ESC(entry->file), SL_ESC(entry->tensor), fault);
	return 0;
}

static bool same_spelling(const struct sl_json *json, uint32_t a, uint32_t b)
{
	const struct sl_json_token *x = &json->tokens[a], *y = &json->tokens[b];

	return x->type == SL_JSON_STRING && y->type == SL_JSON_STRING && x->end - x->start == y->end - y->start &&
	       memcmp(json->text + x->start, json->text + y->start, x->end - x->start) == 0;
}

static int read_entries(struct parse *p, uint32_t map)
{
	uint32_t key = sl_json_first(&p->json, map), before = 0;

	for (uint32_t i = 0; i < p->index->n; i++, before = key, key = sl_json_next(&p->json, key)) {
		struct sl_index_entry *entry = &p->index->entries[i];
		size_t len;
		int ret = read_string(p, key, &entry->tensor, &len);
		if (ret)
			return ret;
		if (strlen(entry->tensor) != len || len > SL_NAME_MAX)
			return sl_fail(p->err, EINVAL,
				       "weight_map: tensor '%s' (byte %u): a name with a NUL in it or of more "
				       "than %u bytes",
				       SL_ESC(entry->tensor), p->json.tokens[key].start, SL_NAME_MAX);
		if (i > 0 && same_spelling(&p->json, before + 1, key + 1))
			entry->file = entry[-1].file;
		else
			ret = read_file(p, key + 1, entry);
		if (ret)
			return ret;
	}
	return 0;
}

static int by_tensor(const void *a, const void *b)
{
	const struct sl_index_entry *x = a, *y = b;

	return strcmp(x->tensor, y->tensor);
}

/* Indexes are written sorted; the others are sorted here. */
static int sort_entries(struct parse *p)
{
	struct sl_index *index = p->index;
	uint32_t sorted = 1;

	while (sorted < index->n && by_tensor(&index->entries[sorted - 1], &index->entries[sorted]) < 0)
		sorted++;
	if (sorted < index->n)
		qsort(index->entries, index->n, sizeof(*index->entries), by_tensor);
	for (uint32_t i = 1; i < index->n; i++) {
		if (by_tensor(&index->entries[i - 1], &index->entries[i]) == 0)
			return sl_fail(p->err, EINVAL, "weight_map: tensor '%s' is there twice",
				       SL_ESC(index->entries[i].tensor));
	}
	return 0;
}

static int read_weight_map(struct parse *p)
{
	uint32_t map = sl_json_member(&p->json, 0, "weight_map");

	if (!map)
		return sl_fail(p->err, EINVAL, "has no weight_map");
	if (p->json.tokens[map].type != SL_JSON_OBJECT)
		return sl_fail(p->err, EINVAL, "weight_map (byte %u) is no object", p->json.tokens[map].start);
	p->index->n = p->json.tokens[map].n;
	if (p->index->n == 0)
		return sl_fail(p->err, EINVAL, "weight_map (byte %u) is empty", p->json.tokens[map].start);
	p->index->entries = sl_arena_array(p->arena, p->index->n, sizeof(*p->index->entries));
	if (!p->index->entries)
		return no_memory(p);
	int ret = read_entries(p, map);
	if (!ret)
		ret = collect_files(p);
	return ret ? ret : sort_entries(p);
}

/* ---- the whole text ---- */

static void read_total(struct parse *p)
{
	uint32_t metadata = sl_json_member(&p->json, 0, "metadata");
	uint32_t total = metadata ? sl_json_member(&p->json, metadata, "total_size") : 0;
	struct sl_escaped buf;

	if (!total || p->json.tokens[total].type == SL_JSON_NULL)
		return;
	p->index->has_total = sl_json_u64(&p->json, total, &p->index->total_size) == 0;
	if (p->index->has_total)
		return;
	const struct sl_json_token *token = &p->json.tokens[total];
	sl_note(p->notes, p->arena, "the index's total_size '%s' is no whole number; it is not used",
		sl_escape(buf.text, sizeof(buf.text), p->json.text + token->start, token->end - token->start));
}

/* Only the keys that are read; what else is in there is nobody's business. */
static int check_keys(struct parse *p)
{
	uint32_t key = sl_json_first(&p->json, 0), maps = 0;

	if (p->json.tokens[0].type != SL_JSON_OBJECT)
		return sl_fail(p->err, EINVAL, "is JSON, but no object");
	for (uint32_t i = 0; i < p->json.tokens[0].n; i++, key = sl_json_next(&p->json, key)) {
		if (sl_json_equal(&p->json, key, "weight_map") && maps++)
			return sl_fail(p->err, EINVAL, "weight_map is there twice, again at byte %u",
				       p->json.tokens[key].start);
	}
	return 0;
}

static int parse_text(struct parse *p, const char *text, size_t len)
{
	static const char bom[] = "\xEF\xBB\xBF";

	if (len == 0)
		return sl_fail(p->err, EINVAL, "is empty (0 bytes)");
	if (len >= strlen(bom) && memcmp(text, bom, strlen(bom)) == 0) {
		text += strlen(bom);
		len -= strlen(bom);
	}
	int ret = sl_json_parse(&p->json, text, len, INDEX_DEPTH, p->err);
	if (ret)
		return ret;
	ret = check_keys(p);
	if (!ret)
		ret = read_weight_map(p);
	if (!ret)
		read_total(p);
	sl_json_release(&p->json);
	return ret;
}

int sl_index_parse(struct sl_index *index, const char *text, size_t len, struct sl_arena *arena, struct sl_note **notes,
		   struct sl_error *err)
{
	struct sl_error fault = SL_ERROR_INIT;
	struct parse p = { .index = index, .arena = arena, .notes = notes, .err = &fault };

	*index = (struct sl_index){ 0 };
	int ret = parse_text(&p, text, len);
	if (ret == 0)
		return 0;
	/* What the file is instead says more than where it stops being an index. */
	ret = sl_impostor_check(text, len, err);
	return ret ? ret : sl_fail(err, fault.errnum, "%s", fault.text);
}

/* The whole file in a malloc'ed buffer. */
static int read_text(int dirfd, const char *name, char **text, size_t *len, struct sl_error *err)
{
	struct stat st;
	int fd;

	int ret = sl_regular_open(dirfd, name, &fd, &st, err);
	if (ret)
		return ret;
	*len = (size_t)st.st_size;
	*text = NULL;
	if (st.st_size > SL_HEADER_MAX)
		ret = sl_fail(err, EINVAL, "has %jd bytes, above the cap of %u", (intmax_t)st.st_size, SL_HEADER_MAX);
	else if (!(*text = malloc(*len + 1)))
		ret = sl_fail(err, ENOMEM, "no memory for its %zu bytes", *len);
	else
		ret = sl_regular_read(fd, *text, 0, *len, err);
	close(fd);
	if (ret)
		free(*text);
	return ret;
}

int sl_index_read(struct sl_index *index, int dirfd, const char *name, struct sl_arena *arena, struct sl_note **notes,
		  struct sl_error *err)
{
	size_t len;
	char *text;

	int ret = read_text(dirfd, name, &text, &len, err);
	if (!ret) {
		ret = sl_index_parse(index, text, len, arena, notes, err);
		free(text);
	}
	if (ret)
		sl_error_prefix(err, "%s", name);
	return ret;
}

bool sl_index_names(const struct sl_index *index, const char *file)
{
	return bsearch(&file, index->files, index->n_files, sizeof(file), by_text) != NULL;
}
