/*
 * locate.c - a directory of files, sorted into kinds by one table of patterns.
 *
 * The same table chooses the weights and, when there are none, says what was found instead: rows count their matches.
 * Sub-directories are never looked into (original/ and metal/ hold second copies).
 */
#include "slicer/locate.h"

#include "slicer/listing.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum kind {
	DEBRIS,	     /* never weights, never served */
	NOT_WEIGHTS, /* safetensors files of another purpose */
	HF_INDEX,
	MISTRAL_INDEX,
	HF_WEIGHTS,
	MISTRAL_WEIGHTS,
	SINGLE_WEIGHTS, /* weights when there is one such file and nothing better */
	FOREIGN,	/* weights that we cannot read */
	OTHER,
};

/* To add a kind of file: its pattern above the more general ones (the first match counts), and its name for people. */
/* clang-format off */
static const struct pattern {
	const char *glob;
	enum kind kind;
	const char *title;
} patterns[] = {
	{ "*.incomplete",                          DEBRIS,          "unfinished download" },
	{ "*.tmp",                                 DEBRIS,          "temporary file" },
	{ "*.lock",                                DEBRIS,          "lock file" },
	{ "*~",                                    DEBRIS,          "editor's backup" },
	{ "._*",                                   DEBRIS,          "macOS attribute file" },
	{ "model.safetensors.index.json",          HF_INDEX,        "model.safetensors.index.json" },
	{ "consolidated.safetensors.index.json",   MISTRAL_INDEX,   "consolidated.safetensors.index.json" },
	{ "*.index.json",                          OTHER,           "index file of another name" },
	{ "adapter*.safetensors",                  NOT_WEIGHTS,     "adapter file" },
	{ "*.lora.safetensors",                    NOT_WEIGHTS,     "LoRA file" },
	{ "optimizer*.safetensors",                NOT_WEIGHTS,     "optimizer file" },
	{ "model*.safetensors",                    HF_WEIGHTS,      "model*.safetensors file" },
	{ "consolidated*.safetensors",             MISTRAL_WEIGHTS, "consolidated*.safetensors file" },
	{ "*.safetensors",                         SINGLE_WEIGHTS,  "other .safetensors file" },
	{ "*.bin",                                 FOREIGN,         ".bin file" },
	{ "*.pth",                                 FOREIGN,         ".pth file" },
	{ "*.pt",                                  FOREIGN,         ".pt file" },
	{ "*.ckpt",                                FOREIGN,         ".ckpt file" },
	{ "*.gguf",                                FOREIGN,         ".gguf file" },
	{ "*.onnx",                                FOREIGN,         ".onnx file" },
	{ "*.h5",                                  FOREIGN,         ".h5 file" },
	{ "*.msgpack",                             FOREIGN,         ".msgpack file" },
	{ "*.npz",                                 FOREIGN,         ".npz file" },
	{ "*",                                     OTHER,           "file of another kind" },
};
/* clang-format on */

enum { N_PATTERNS = sizeof(patterns) / sizeof(patterns[0]) };

/* In this order; AUTO takes the first that is there. */
static const struct source {
	enum sl_format format;
	enum kind index; /* DEBRIS: has none */
	enum kind weights;
} sources[] = {
	{ SL_FORMAT_HF, HF_INDEX, HF_WEIGHTS },
	{ SL_FORMAT_MISTRAL, MISTRAL_INDEX, MISTRAL_WEIGHTS },
	{ SL_FORMAT_HF, DEBRIS, SINGLE_WEIGHTS },
};

/* A name that may matter. */
struct found {
	struct found *next;
	const char *name;
	enum kind kind;
};

struct survey {
	struct found *found;
	uint32_t counts[N_PATTERNS];
	uint32_t n;
};

static unsigned pattern_of(const char *name)
{
	unsigned i = 0;

	while (i < N_PATTERNS - 1 && fnmatch(patterns[i].glob, name, 0) != 0)
		i++;
	return i;
}

int sl_name_is_debris(const char *name)
{
	return patterns[pattern_of(name)].kind == DEBRIS;
}

static int note_entry(struct survey *survey, const char *name, struct sl_arena *arena, struct sl_error *err)
{
	unsigned i = pattern_of(name);

	survey->counts[i]++;
	survey->n++;
	struct found *found = sl_arena_alloc(arena, sizeof(*found));
	if (!found || !(found->name = sl_arena_strdup(arena, name)))
		return sl_fail(err, ENOMEM, "no memory for the names in the directory");
	found->kind = patterns[i].kind;
	found->next = survey->found;
	survey->found = found;
	return 0;
}

static int read_entries(DIR *stream, struct survey *survey, struct sl_arena *arena, struct sl_error *err)
{
	for (;;) {
		errno = 0;
		struct dirent *entry = readdir(stream);
		if (!entry)
			return errno ? sl_fail(err, errno, "cannot be listed: %s", strerror(errno)) : 0;
		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
			continue;
		int ret = note_entry(survey, entry->d_name, arena, err);
		if (ret)
			return ret;
	}
}

static int survey_directory(struct survey *survey, int dirfd, struct sl_arena *arena, struct sl_error *err)
{
	int fd = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *stream = fd < 0 ? NULL : fdopendir(fd);

	if (!stream) {
		int ret = sl_fail(err, errno, "cannot be listed: %s", strerror(errno));
		if (fd >= 0)
			close(fd);
		return ret;
	}
	int ret = read_entries(stream, survey, arena, err);
	closedir(stream);
	return ret;
}

static uint32_t count_kind(const struct survey *survey, enum kind kind)
{
	uint32_t n = 0;

	for (unsigned i = 0; i < N_PATTERNS; i++)
		n += patterns[i].kind == kind ? survey->counts[i] : 0;
	return n;
}

/* "2 .bin files, 1 unfinished download", weights first. */
static void describe(const struct survey *survey, char *text, size_t cap)
{
	size_t len = 0;

	text[0] = '\0';
	for (unsigned i = 0; i < N_PATTERNS && len < cap - 1; i++) {
		uint32_t n = survey->counts[i];
		if (n)
			len += (size_t)snprintf(text + len, cap - len, "%s%u %s%s", len ? ", " : "", n,
						patterns[i].title, n > 1 ? "s" : "");
	}
}

static int fail_no_weights(const struct survey *survey, const char *dir, enum sl_format format, struct sl_error *err)
{
	char found[600];
	const char *wanted = format == SL_FORMAT_MISTRAL ? "consolidated*.safetensors" : "safetensors";

	if (survey->n == 0)
		return sl_fail(err, ENOENT, "'%s' is an empty directory", SL_ESC(dir));
	describe(survey, found, sizeof(found));
	if (count_kind(survey, FOREIGN))
		return sl_fail(err, ENOENT, "'%s' has no %s weights: found %s; only safetensors is supported",
			       SL_ESC(dir), wanted, found);
	return sl_fail(err, ENOENT, "'%s' has no %s weights: found %s", SL_ESC(dir), wanted, found);
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int collect(struct sl_located *located, const struct survey *survey, const struct source *source,
		   struct sl_arena *arena, struct sl_error *err)
{
	located->files = sl_arena_array(arena, count_kind(survey, source->weights), sizeof(*located->files));
	if (!located->files)
		return sl_fail(err, ENOMEM, "no memory for the names of its weights");
	for (const struct found *f = survey->found; f; f = f->next) {
		if (f->kind == source->weights)
			located->files[located->n_files++] = f->name;
		if (f->kind == source->index && source->index != DEBRIS)
			located->index = f->name;
	}
	located->format = source->format;
	qsort(located->files, located->n_files, sizeof(*located->files), by_text);
	return 0;
}

/* Several files of no known family: any could be the model. */
static int check_single(const struct sl_located *located, struct sl_error *err)
{
	struct sl_listing listing = SL_LISTING_INIT;

	if (located->n_files < 2)
		return 0;
	for (uint32_t i = 0; i < located->n_files; i++)
		sl_listing_add(&listing, located->files[i], NULL);
	return sl_fail(err, EINVAL,
		       "%u files could be the weights: %s; name the right one model.safetensors, or add an index",
		       located->n_files, sl_listing_text(&listing));
}

int sl_locate(struct sl_located *located, int dirfd, const char *dir, enum sl_format format, struct sl_arena *arena,
	      struct sl_error *err)
{
	struct survey survey = { 0 };

	*located = (struct sl_located){ 0 };
	int ret = survey_directory(&survey, dirfd, arena, err);
	if (ret) {
		sl_error_prefix(err, "'%s'", SL_ESC(dir));
		return ret;
	}
	for (unsigned i = 0; i < sizeof(sources) / sizeof(sources[0]); i++) {
		const struct source *source = &sources[i];
		if (format != SL_FORMAT_AUTO && format != source->format)
			continue;
		bool indexed = source->index != DEBRIS && count_kind(&survey, source->index);
		if (!indexed && !count_kind(&survey, source->weights))
			continue;
		ret = collect(located, &survey, source, arena, err);
		return ret || source->weights != SINGLE_WEIGHTS ? ret : check_single(located, err);
	}
	return fail_no_weights(&survey, dir, format, err);
}

/* Digits before "-of-" and after it, up to the suffix; shards are counted from 0 or from 1. */
unsigned sl_split_number(const char *name, unsigned *total)
{
	unsigned number;
	int end = 0;
	const char *of = strstr(name, "-of-"), *at = of;

	*total = 0;
	while (at && at > name && at[-1] >= '0' && at[-1] <= '9')
		at--;
	if (!of || of - at > 6 || sscanf(at, "%6u-of-%6u.safetensors%n", &number, total, &end) != 2 || end == 0 ||
	    at[end]) {
		*total = 0;
		return 0;
	}
	return number;
}

int sl_located_check_split(const struct sl_located *located, struct sl_error *err)
{
	const char *first = NULL;
	unsigned total = 0;
	uint32_t n = 0;

	for (uint32_t i = 0; i < located->n_files; i++) {
		unsigned its_total;
		sl_split_number(located->files[i], &its_total);
		if (!its_total)
			continue;
		if (first && its_total != total)
			return sl_fail(err, EINVAL, "'%s' and '%s' belong to different splits, and no index chooses",
				       SL_ESC(first), SL_ESC(located->files[i]));
		first = first ? first : located->files[i];
		total = its_total;
		n++;
	}
	if (n < total)
		return sl_fail(err, ENOENT, "only %u of the %u shards that '%s' belongs to are there", n, total,
			       SL_ESC(first));
	return 0;
}
