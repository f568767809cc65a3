/*
 * cache.c - the files of the cache: HASH.catalogue, the hash being of the directory, the format and the program.
 *
 *      magic 8 | checksum of all that follows 8 | bytes unpacked 8 | lz4 block
 */
#include "slicer/cache.h"

#include "slicer/regular.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <lz4.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define SUFFIX ".catalogue"
#define UNDONE ".new" /* of a file that is being written */

enum { FRONT = 24, NAME_ROOM = 64, LEFT_BEHIND_S = 3600 };

#define LARGEST (UINT64_C(1) << 30) /* of an entry, packed or not */

static const char magic[8] = "rankfs\x01\n";

/* ---- an entry's bytes ---- */

static uint64_t mix(uint64_t hash, uint64_t word)
{
	hash = (hash ^ word) * UINT64_C(0x9E3779B97F4A7C15);
	return hash ^ hash >> 29;
}

/* Each step can be undone, so that one changed word always changes the sum. */
static uint64_t checksum(const unsigned char *bytes, size_t len)
{
	uint64_t hash = len, word;

	for (; len >= sizeof(word); bytes += sizeof(word), len -= sizeof(word)) {
		memcpy(&word, bytes, sizeof(word));
		hash = mix(hash, word);
	}
	word = 0;
	memcpy(&word, bytes, len);
	return mix(hash, word);
}

bool sl_cache_pack(struct sl_text *packed, const struct sl_text *raw)
{
	uint64_t raw_len = raw->len, sum;
	int room = raw->len <= LZ4_MAX_INPUT_SIZE ? LZ4_compressBound((int)raw->len) : 0;
	char *block = room > 0 ? malloc(FRONT + (size_t)room) : NULL;

	if (!block)
		return false;
	int len = LZ4_compress_default(raw->bytes, block + FRONT, (int)raw->len, room);
	if (len > 0) {
		memcpy(block, magic, sizeof(magic));
		memcpy(block + 16, &raw_len, sizeof(raw_len));
		sum = checksum((unsigned char *)block + 16, FRONT - 16 + (size_t)len);
		memcpy(block + 8, &sum, sizeof(sum));
		sl_text_add(packed, block, FRONT + (size_t)len);
	}
	free(block);
	return len > 0 && !packed->failed;
}

/* lz4 makes at most 255 bytes of one: no more memory is taken than the file may be worth. */
unsigned char *sl_cache_unpack(const unsigned char *packed, size_t len, size_t *raw_len)
{
	uint64_t sum, n;

	if (len < FRONT || len > LARGEST || memcmp(packed, magic, sizeof(magic)) != 0)
		return NULL;
	memcpy(&sum, packed + 8, sizeof(sum));
	memcpy(&n, packed + 16, sizeof(n));
	if (n > LARGEST || n > 255 * (uint64_t)len || sum != checksum(packed + 16, len - 16))
		return NULL;
	unsigned char *raw = malloc(n + 1);
	if (raw &&
	    LZ4_decompress_safe((const char *)packed + FRONT, (char *)raw, (int)(len - FRONT), (int)n) == (int)n) {
		*raw_len = n;
		return raw;
	}
	free(raw);
	return NULL;
}

/* ---- names ---- */

static uint64_t hash_text(uint64_t hash, const char *text)
{
	for (; *text; text++)
		hash = mix(hash, (unsigned char)*text);
	return mix(hash, 0x100);
}

/* The name of a checkpoint's entry: there is one for a directory, so that a new one takes the place of a stale one. */
static int name_entry(const struct sl_cache *cache, const struct sl_shards *shards, const struct sl_catalogue_key *key,
		      char name[NAME_ROOM])
{
	struct stat st;

	if (fstat(shards->dirfd, &st))
		return -errno;
	uint64_t hash = mix(mix(mix(1, st.st_dev), st.st_ino), (uint64_t)key->asked);
	snprintf(name, NAME_ROOM, "%016" PRIx64 SUFFIX, hash_text(hash, cache->build));
	return 0;
}

static bool ends_with(const char *name, const char *end)
{
	size_t len = strlen(name), end_len = strlen(end);

	return len >= end_len && strcmp(name + len - end_len, end) == 0;
}

/* ---- taking ---- */

/* A file that is nobody else's: all of it, malloc'ed, or NULL. */
static unsigned char *read_entry(const struct sl_cache *cache, const char *name, size_t *len)
{
	struct sl_error unused = SL_ERROR_INIT;
	unsigned char *bytes = NULL;
	struct stat st;
	int fd = openat(cache->dirfd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);

	if (fd < 0)
		return NULL;
	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() && !(st.st_mode & 022) &&
	    (uint64_t)st.st_size <= LARGEST) {
		*len = (size_t)st.st_size;
		bytes = malloc(*len + 1);
		if (bytes && sl_regular_read(fd, bytes, 0, *len, &unused)) {
			free(bytes);
			bytes = NULL;
		}
	}
	close(fd);
	return bytes;
}

/* Open the shards, which must be what they were. */
static bool open_same(struct sl_shards *shards)
{
	struct sl_error unused = SL_ERROR_INIT;

	for (uint32_t i = 0; i < shards->n_shards; i++) {
		struct sl_shard *shard = &shards->shards[i];
		struct sl_identity identity;
		struct stat st;
		if (sl_regular_open(shards->dirfd, shard->name, &shard->fd, &st, &unused))
			return false;
		identity = sl_identity_of(&st);
		if (memcmp(&identity, &shard->identity, sizeof(identity)) != 0)
			return false;
	}
	return true;
}

static void forget(struct sl_shards *shards)
{
	for (uint32_t i = 0; i < shards->n_shards; i++) {
		if (shards->shards[i].fd >= 0)
			close(shards->shards[i].fd);
	}
	shards->shards = NULL;
	shards->tensors = NULL;
	shards->notes = NULL;
	shards->n_shards = shards->n_tensors = 0;
}

static bool take_entry(struct sl_cache *cache, const char *name, struct sl_shards *shards,
		       const struct sl_catalogue_key *key, struct sl_arena *arena)
{
	size_t len, raw_len = 0;
	unsigned char *packed = read_entry(cache, name, &len);
	unsigned char *raw = packed ? sl_cache_unpack(packed, len, &raw_len) : NULL;
	bool good = false;

	free(packed);
	if (raw && sl_catalogue_read(shards, key, raw, raw_len, arena)) {
		good = open_same(shards);
		if (!good)
			forget(shards);
	}
	free(raw);
	return good;
}

bool sl_cache_take(struct sl_cache *cache, struct sl_shards *shards, const struct sl_catalogue_key *key,
		   struct sl_arena *arena)
{
	char name[NAME_ROOM];

	cache->hit = name_entry(cache, shards, key, name) == 0 && take_entry(cache, name, shards, key, arena);
	if (cache->hit)
		utimensat(cache->dirfd, name, NULL, AT_SYMLINK_NOFOLLOW); /* the order in which entries go */
	return cache->hit;
}

/* ---- storing ---- */

static bool has_rested(const struct sl_identity *identity, int64_t now_ns, unsigned seconds)
{
	int64_t before = now_ns - (int64_t)seconds * 1000000000;

	return seconds == 0 || (identity->mtime_ns <= before && identity->ctime_ns <= before);
}

/* Are the files still what they were when they were read, and could a change since then not hide? */
static bool are_settled(struct sl_cache *cache, const struct sl_shards *shards, const struct sl_catalogue_key *key)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	int64_t now_ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
	bool rested = !key->located->index || has_rested(&key->index, now_ns, cache->rest);
	for (uint32_t i = 0; i < shards->n_shards; i++) {
		const struct sl_shard *shard = &shards->shards[i];
		struct sl_identity identity;
		struct stat st;
		if (fstat(shard->fd, &st))
			return false;
		identity = sl_identity_of(&st);
		if (memcmp(&identity, &shard->identity, sizeof(identity)) != 0)
			return false;
		rested &= has_rested(&identity, now_ns, cache->rest);
	}
	if (!rested)
		snprintf(cache->why, sizeof(cache->why), "its files changed within the last %u seconds", cache->rest);
	return rested;
}

static bool write_all(int fd, const char *bytes, size_t len)
{
	while (len > 0) {
		ssize_t n = write(fd, bytes, len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		bytes += n;
		len -= (size_t)n;
	}
	return true;
}

/* Written beside it, then renamed: nobody ever sees a part of it. */
static bool write_entry(struct sl_cache *cache, const char *name, const struct sl_text *packed)
{
	static _Atomic unsigned count;
	char fresh[NAME_ROOM + 48];

	snprintf(fresh, sizeof(fresh), "%s.%ld-%u" UNDONE, name, (long)getpid(), count++);
	int fd = openat(cache->dirfd, fresh, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	bool ok = fd >= 0 && write_all(fd, packed->bytes, packed->len);
	if (fd >= 0 && close(fd))
		ok = false;
	if (ok && renameat(cache->dirfd, fresh, cache->dirfd, name) == 0)
		return true;
	snprintf(cache->why, sizeof(cache->why), "%s", strerror(errno));
	if (fd >= 0)
		unlinkat(cache->dirfd, fresh, 0);
	return false;
}

struct aged {
	char name[256];
	int64_t used_ns;
	uint64_t size;
};

static int by_age(const void *a, const void *b)
{
	const struct aged *x = a, *y = b;

	return (x->used_ns > y->used_ns) - (x->used_ns < y->used_ns);
}

/* Entries, and files that a writer which is gone has left. */
static struct aged *list_entries(DIR *dir, size_t *n)
{
	struct aged *entries = NULL;
	size_t room = 0;
	int64_t undone = (int64_t)(time(NULL) - LEFT_BEHIND_S) * 1000000000;

	*n = 0;
	for (struct dirent *e; (e = readdir(dir));) {
		struct stat st;
		bool is_undone = ends_with(e->d_name, UNDONE);
		if ((!is_undone && !ends_with(e->d_name, SUFFIX)) ||
		    fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) || !S_ISREG(st.st_mode))
			continue;
		if (is_undone) {
			if (sl_mtime_ns(&st) < undone)
				unlinkat(dirfd(dir), e->d_name, 0);
			continue;
		}
		if (*n == room) {
			room = room ? 2 * room : 16;
			struct aged *grown = reallocarray(entries, room, sizeof(*grown));
			if (!grown)
				break;
			entries = grown;
		}
		struct aged *entry = &entries[(*n)++];
		snprintf(entry->name, sizeof(entry->name), "%s", e->d_name);
		entry->used_ns = sl_mtime_ns(&st);
		entry->size = (uint64_t)st.st_size;
	}
	return entries;
}

/* Remove those that have not been used for longest, until all have room. */
static void prune(const struct sl_cache *cache)
{
	int fd = openat(cache->dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	uint64_t total = 0;
	size_t n;

	if (!dir) {
		if (fd >= 0)
			close(fd);
		return;
	}
	struct aged *entries = list_entries(dir, &n);
	for (size_t i = 0; i < n; i++)
		total += entries[i].size;
	if (n)
		qsort(entries, n, sizeof(*entries), by_age);
	for (size_t i = 0; i < n && total > cache->room; i++) {
		unlinkat(cache->dirfd, entries[i].name, 0);
		total -= entries[i].size;
	}
	free(entries);
	closedir(dir);
}

void sl_cache_store(struct sl_cache *cache, const struct sl_shards *shards, const struct sl_catalogue_key *key)
{
	struct sl_text raw = SL_TEXT_INIT, packed = SL_TEXT_INIT;
	char name[NAME_ROOM];

	if (shards->n_tensors < cache->least || !are_settled(cache, shards, key) ||
	    name_entry(cache, shards, key, name))
		return;
	if (sl_catalogue_write(&raw, key, shards) && sl_cache_pack(&packed, &raw) && packed.len <= cache->room)
		cache->stored = write_entry(cache, name, &packed);
	else
		snprintf(cache->why, sizeof(cache->why), "it is too large");
	sl_text_release(&raw);
	sl_text_release(&packed);
	if (cache->stored)
		prune(cache);
}
