/*
 * index_walk.c - see index_walk.h. The text goes through a window of a fixed size: it may be 60 MB long.
 */
#include "slicer/index_walk.h"

#include "slicer/regular.h"
#include "slicer/scan.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TEXT(literal) literal, sizeof(literal) - 1

enum {
	WINDOW = 256 << 10,
	MEMBER_ROOM = 16 << 10, /* one member with a name of 4096 bytes, and white space */
};

struct walk {
	struct sl_scan scan; /* the part of the text in the window that has not been read */
	char *window;
	int fd;
	uint64_t off, size; /* of the text: behind the window, and all of it */
	const struct sl_shard *shards;
	const struct sl_run *runs;
	uint32_t n_runs, run; /* the one of the last tensor */
	uint32_t *next;	      /* per run: its first tensor that has not been given */
	struct sl_tensor *out;
	struct sl_walked *walked;
};

/* See that a whole member is in the window, or what is left of the text. */
static bool refill(struct walk *w)
{
	struct sl_error unused = SL_ERROR_INIT;
	size_t left = (size_t)(w->scan.end - w->scan.at), room = WINDOW - left;
	uint64_t more = w->size - w->off;

	if (left >= MEMBER_ROOM || more == 0)
		return true;
	if (more > room)
		more = room;
	memmove(w->window, w->scan.at, left);
	if (sl_regular_read(w->fd, w->window + left, w->off, more, &unused))
		return false;
	w->off += more;
	w->scan = (struct sl_scan){ w->window, w->window + left + more };
	return true;
}

/* Does the text go on with that string and a quote? */
static bool goes_on(struct sl_scan *s, const char *text, size_t len)
{
	if ((size_t)(s->end - s->at) <= len || s->at[len] != '"' || memcmp(s->at, text, len) != 0)
		return false;
	s->at += len + 1;
	return true;
}

static bool is_next(const struct walk *w, uint32_t run, const char *name, size_t len)
{
	const struct sl_tensor *t = &w->runs[run].tensors[w->next[run]];

	return w->next[run] < w->runs[run].n && t->name_len == len && memcmp(t->name, name, len) == 0;
}

/* The file that comes next in the text; n_runs for one that is not there. */
static uint32_t scan_file(struct walk *w)
{
	const char *name;
	size_t len;
	uint32_t first = 0, n = w->n_runs;

	if (!sl_scan_char(&w->scan, '"'))
		return w->n_runs;
	const char *guess = w->shards[w->run].name;
	if (goes_on(&w->scan, guess, strlen(guess)))
		return w->run;
	w->scan.at--;
	if (!sl_scan_string(&w->scan, &name, &len))
		return w->n_runs;
	while (n > 0) {
		const char *other = w->shards[first + n / 2].name;
		int order = strncmp(other, name, len);
		if (order == 0 && !other[len])
			return first + n / 2;
		if (order < 0) {
			first += n / 2 + 1;
			n -= n / 2 + 1;
		} else {
			n /= 2;
		}
	}
	return w->n_runs;
}

/* Give the next tensor of a run. It comes behind the last one: by itself where that is of the same run. */
static bool take(struct walk *w, uint32_t run)
{
	const struct sl_tensor *t = &w->runs[run].tensors[w->next[run]];

	if (run != w->run && w->walked->n && strcmp(w->out[w->walked->n - 1].name, t->name) >= 0)
		return false;
	w->out[w->walked->n++] = *t;
	w->next[run]++;
	w->run = run;
	return true;
}

/* "tensor": "file" */
static bool scan_member(struct walk *w)
{
	const char *name;
	size_t len;

	if (!refill(w) || !sl_scan_char(&w->scan, '"'))
		return false;
	/* Nearly always the file is the last one's, so the name is known before it is read. */
	const struct sl_tensor *guess = &w->runs[w->run].tensors[w->next[w->run]];
	name = w->scan.at;
	len = guess->name_len;
	if (w->next[w->run] == w->runs[w->run].n || !goes_on(&w->scan, guess->name, len)) {
		w->scan.at--;
		if (!sl_scan_string(&w->scan, &name, &len))
			return false;
	}
	if (!sl_scan_char(&w->scan, ':'))
		return false;
	uint32_t run = scan_file(w);
	return run < w->n_runs && is_next(w, run, name, len) && take(w, run);
}

static bool scan_map(struct walk *w)
{
	if (w->walked->n || !sl_scan_char(&w->scan, ':') || !sl_scan_char(&w->scan, '{'))
		return false;
	do {
		if (!scan_member(w))
			return false;
	} while (sl_scan_char(&w->scan, ','));
	return sl_scan_char(&w->scan, '}');
}

/* An object of whole numbers and strings, among them the size of all tensors. */
static bool scan_metadata(struct walk *w, bool *seen)
{
	struct sl_scan *s = &w->scan;
	const char *key, *text;
	size_t len;
	uint64_t value;

	if (*seen || !sl_scan_char(s, ':') || !sl_scan_char(s, '{'))
		return false;
	*seen = true;
	for (unsigned n = 0; !sl_scan_char(s, '}'); n++) {
		if ((n && !sl_scan_char(s, ',')) || !sl_scan_string(s, &key, &len) || !sl_scan_char(s, ':'))
			return false;
		bool is_total = len == strlen("total_size") && memcmp(key, "total_size", len) == 0;
		if (is_total ? w->walked->has_total || !sl_scan_u64(s, &w->walked->total_size)
			     : !sl_scan_u64(s, &value) && !sl_scan_string(s, &text, &len))
			return false;
		w->walked->has_total |= is_total;
	}
	return true;
}

static bool scan_index(struct walk *w)
{
	bool metadata = false;

	if (!refill(w) || !sl_scan_char(&w->scan, '{'))
		return false;
	do {
		bool map = sl_scan_text(&w->scan, TEXT("\"weight_map\""));
		if (!map && !sl_scan_text(&w->scan, TEXT("\"metadata\"")))
			return false;
		if (map ? !scan_map(w) : !scan_metadata(w, &metadata))
			return false;
		if (!refill(w))
			return false;
	} while (sl_scan_char(&w->scan, ','));
	if (!sl_scan_char(&w->scan, '}'))
		return false;
	sl_scan_space(&w->scan);
	return w->scan.at == w->scan.end && w->off == w->size;
}

/* Has every file tensors, and are all of them given? */
static bool all_given(const struct walk *w)
{
	for (uint32_t i = 0; i < w->n_runs; i++) {
		if (w->runs[i].n == 0 || w->next[i] < w->runs[i].n)
			return false;
	}
	return true;
}

bool sl_index_walk(struct sl_walked *walked, int dirfd, const char *name, const struct sl_shard *shards,
		   const struct sl_run *runs, uint32_t n_runs, struct sl_tensor *out)
{
	struct walk w = { .shards = shards, .runs = runs, .n_runs = n_runs, .out = out, .walked = walked };
	struct sl_error unused = SL_ERROR_INIT;
	struct stat st;

	*walked = (struct sl_walked){ 0 };
	if (n_runs == 0 || sl_regular_open(dirfd, name, &w.fd, &st, &unused))
		return false;
	w.size = (uint64_t)st.st_size;
	w.window = malloc(WINDOW);
	w.next = calloc(n_runs, sizeof(*w.next));
	w.scan = (struct sl_scan){ w.window, w.window };
	bool agrees = w.size <= SL_HEADER_MAX && w.window && w.next && scan_index(&w) && all_given(&w);
	close(w.fd);
	free(w.window);
	free(w.next);
	return agrees;
}
