/*
 * shards.h - a checkpoint directory's weight files: which they are, and all their tensors by name.
 *
 * model.safetensors.index.json decides, tensor by tensor, when it is there; else the files' own names do, one family of
 * names at a time: model*.safetensors, else consolidated*.safetensors, else the single other *.safetensors. Nothing is
 * ever taken from two families, and one bad shard refuses the whole directory.
 */
#ifndef SLICER_SHARDS_H
#define SLICER_SHARDS_H

#include "slicer/arena.h"
#include "slicer/error.h"
#include "slicer/header.h"
#include <stdint.h>

struct sl_cache;
struct stat;

/* What a file is, and in which state: as long as all of it is the same, so are its bytes. */
struct sl_identity {
	uint64_t dev, ino, size;
	int64_t mtime_ns, ctime_ns;
};
struct sl_identity sl_identity_of(const struct stat *st);

/* Which naming the weights have. AUTO takes the HF one where both are there. */
enum sl_format { SL_FORMAT_AUTO, SL_FORMAT_HF, SL_FORMAT_MISTRAL };

/* A weight file, held open: a file that is replaced by rename stays the one whose header was read. */
struct sl_shard {
	const char *name; /* relative to the directory, as the index or the directory gives it */
	int fd;
	uint64_t size;
	int64_t mtime_ns;
	uint64_t data_off; /* first byte of tensor data: 8 + N */
	struct sl_identity identity;
};

/* A remark that the user should see, but that refuses nothing. */
struct sl_note {
	struct sl_note *next;
	const char *text;
};

struct sl_shards {
	const char *dir;
	int dirfd;
	enum sl_format format; /* HF or MISTRAL, never AUTO */
	struct sl_shard *shards;
	uint32_t n_shards; /* in order of their names, byte by byte */
	struct sl_tensor *tensors;
	uint32_t n_tensors; /* sorted by name, byte by byte; names are unique */
	struct sl_note *notes;
};

/* Open every shard of `dir`, read every header, check every rule. Memory comes from the arena; files and the directory
 * stay open until sl_shards_close(). On failure nothing stays open. The result depends neither on the order of the
 * directory, nor of headers, nor of the index. */
int sl_shards_open(struct sl_shards *shards, const char *dir, enum sl_format format, struct sl_arena *arena,
		   struct sl_error *err) SL_MUST_CHECK;

/* The same, from the cache where that has it; else it is stored there. */
int sl_shards_open_cached(struct sl_shards *shards, const char *dir, enum sl_format format, struct sl_cache *cache,
			  struct sl_arena *arena, struct sl_error *err) SL_MUST_CHECK;
void sl_shards_close(struct sl_shards *shards);

/* The index of the first tensor whose name is `name` or after it: those whose names begin with it follow one another from
 * there. n_tensors when there is none. */
uint32_t sl_shards_seek(const struct sl_shards *shards, const char *name);

/* The same, looking around `hint` first: any is right, and one close by is quick. */
uint32_t sl_shards_seek_near(const struct sl_shards *shards, const char *name, uint32_t hint);

/* The tensor of that name, or NULL. */
const struct sl_tensor *sl_shards_find(const struct sl_shards *shards, const char *name);

/* Read exactly `len` bytes at `off` of a shard: 0; -EIO when the file is shorter or the disk fails; -ESTALE when its size
 * or time of change is not what it was at open, checked after the bytes are in `buf`. Thread-safe. */
int sl_shard_read(const struct sl_shard *shard, void *buf, uint64_t off, size_t len,
		  struct sl_error *err) SL_MUST_CHECK;

/* Is this name of a directory entry never a weight and never worth serving: partial downloads, editors' and macOS's
 * copies (.incomplete .tmp .lock ~ ._*)? */
int sl_name_is_debris(const char *name);

/* Add a note; formatting as printf. Ignores a lack of memory: a note is advice. */
void sl_note(struct sl_note **notes, struct sl_arena *arena, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

#endif
