/*
 * test_cache.c - a catalogue from the cache is what the headers say, or there is none.
 */
#include "fixture.h"

#include "slicer/cache.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define INDEX "model/model.safetensors.index.json"
#define ONE   "model-00001-of-00002.safetensors"
#define TWO   "model-00002-of-00002.safetensors"

static struct sl_cache cache;
static struct sl_arena arena;
static struct sl_shards shards;
static struct sl_error err;

static void write_model(void)
{
	static const struct fixture_tensor one[] = {
		{ .name = "layers.0.b", .dtype = "F32", .n_dims = 2, .shape = { 2, 3 } },
		{ .name = "layers.0.a", .dtype = "BF16", .n_dims = 1, .shape = { 4 } },
		{ .name = "layers.0.\u00e4", .dtype = "BF16", .n_dims = 0 },
		{ .name = "layers.10.a", .dtype = "F32", .n_dims = 2, .shape = { 2, 3 } },
	};
	static const struct fixture_tensor two[] = {
		{ .name = "layers.1.a", .dtype = "BF16", .n_dims = 1, .shape = { 4 } },
		{ .name = "layers.1.unused", .dtype = "U8", .n_dims = 3, .shape = { 1, 1, 5 } },
	};

	fixture_tensors("model/" ONE, one, 4);
	fixture_tensors("model/" TWO, two, 2);
	fixture_index(INDEX, "layers.0.a", ONE, "layers.0.b", ONE, "layers.0.\u00e4", ONE, "layers.1.a", TWO,
		      "layers.10.a", ONE, NULL);
	fixture_names("model/model-extra.safetensors", "z", NULL);
}

static void setup(void)
{
	fixture_open();
	write_model();
	sl_arena_init(&arena);
	shards.dirfd = -1;
	cr_assert_eq(mkdir(fixture_path("cache"), 0700), 0);
	cache = (struct sl_cache){ .build = "this", .room = 1 << 20 };
	cache.dirfd = open(fixture_path("cache"), O_RDONLY | O_DIRECTORY);
	cr_assert_geq(cache.dirfd, 0);
}

static void teardown(void)
{
	sl_shards_close(&shards);
	sl_arena_release(&arena);
	close(cache.dirfd);
	fixture_close();
}

TestSuite(cache, .init = setup, .fini = teardown, .timeout = 60);

static int open_as(enum sl_format format)
{
	sl_shards_close(&shards);
	err = (struct sl_error)SL_ERROR_INIT;
	cache.hit = cache.stored = false;
	cache.why[0] = '\0';
	return sl_shards_open_cached(&shards, fixture_path("model"), format, &cache, &arena, &err);
}

static void expect(bool hit, bool stored)
{
	cr_assert_eq(open_as(SL_FORMAT_AUTO), 0, "%s", err.text);
	cr_assert_eq(cache.hit, hit, "hit: %d", cache.hit);
	cr_assert_eq(cache.stored, stored, "stored: %d (%s)", cache.stored, cache.why);
}

static void expect_same_tensor(const struct sl_tensor *a, const struct sl_tensor *b)
{
	cr_assert_str_eq(a->name, b->name);
	cr_assert(a->off == b->off && a->len == b->len && a->shard == b->shard && a->name_len == b->name_len &&
			  a->dtype == b->dtype && a->n_dims == b->n_dims,
		  "%s", a->name);
	cr_assert_eq(a->name_len, strlen(a->name));
	cr_assert_eq(memcmp(a->shape, b->shape, a->n_dims * sizeof(*a->shape)), 0);
}

/* All that sl_shards_open() says, but for descriptors. */
static void expect_same(const struct sl_shards *a, const struct sl_shards *b)
{
	const struct sl_note *x = a->notes, *y = b->notes;

	cr_assert_str_eq(a->dir, b->dir);
	cr_assert(a->format == b->format && a->n_shards == b->n_shards && a->n_tensors == b->n_tensors);
	for (uint32_t i = 0; i < a->n_shards; i++) {
		const struct sl_shard *s = &a->shards[i], *t = &b->shards[i];
		cr_assert_str_eq(s->name, t->name);
		cr_assert(s->size == t->size && s->mtime_ns == t->mtime_ns && s->data_off == t->data_off);
		cr_assert_eq(memcmp(&s->identity, &t->identity, sizeof(s->identity)), 0);
		cr_assert(fcntl(s->fd, F_GETFD) >= 0 && fcntl(t->fd, F_GETFD) >= 0);
	}
	for (uint32_t i = 0; i < a->n_tensors; i++)
		expect_same_tensor(&a->tensors[i], &b->tensors[i]);
	for (; x && y; x = x->next, y = y->next)
		cr_assert_str_eq(x->text, y->text);
	cr_assert(!x && !y, "as many notes");
}

/* Against the headers themselves. */
static void expect_true(void)
{
	struct sl_shards plain;

	cr_assert_eq(sl_shards_open(&plain, fixture_path("model"), SL_FORMAT_AUTO, &arena, &err), 0, "%s", err.text);
	expect_same(&shards, &plain);
	sl_shards_close(&plain);
}

/* The name of the only entry. */
static const char *entry(void)
{
	static char name[300];
	DIR *dir = opendir(fixture_path("cache"));
	unsigned n = 0;

	for (struct dirent *e; (e = readdir(dir));) {
		if (e->d_name[0] == '.')
			continue;
		n++;
		snprintf(name, sizeof(name), "cache/%s", e->d_name);
	}
	closedir(dir);
	cr_assert_eq(n, 1, "%u files in the cache", n);
	return fixture_path(name);
}

static unsigned char *read_whole(const char *path, size_t *len)
{
	FILE *file = fopen(path, "rb");
	unsigned char *bytes = malloc(1 << 20);

	cr_assert(file && bytes);
	*len = fread(bytes, 1, 1 << 20, file);
	fclose(file);
	return bytes;
}

static void overwrite(const char *path, const void *bytes, size_t len)
{
	FILE *file = fopen(path, "wb");

	cr_assert(file && fwrite(bytes, 1, len, file) == len && fclose(file) == 0);
}

Test(cache, a_hit_is_what_a_miss_is)
{
	struct stat st;

	expect(false, true);
	expect_true();
	expect(true, false);
	expect_true();
	cr_assert_eq(stat(entry(), &st), 0);
	cr_assert_eq(st.st_mode & 0777, 0600);
	cr_assert(shards.notes && strstr(shards.notes->text, "layers.1.unused"), "the notes are there too");
}

Test(cache, without_an_index)
{
	cr_assert_eq(unlink(fixture_path(INDEX)), 0);
	cr_assert_eq(unlink(fixture_path("model/model-extra.safetensors")), 0);
	expect(false, true);
	expect(true, false);
	expect_true();
}

/* ---- stale ---- */

static void shard_is_longer(void)
{
	static const struct fixture_tensor more[] = {
		{ .name = "layers.1.a", .dtype = "BF16", .n_dims = 1, .shape = { 8 } },
	};
	fixture_tensors("model/" TWO, more, 1);
}

static void shard_is_touched(void)
{
	const struct timespec times[2] = { { 1000, 0 }, { 1000, 0 } };

	cr_assert_eq(utimensat(AT_FDCWD, fixture_path("model/" TWO), times, 0), 0);
}

/* Other bytes, the same size and time of modification: what is left is the time of the last change. */
static void shard_changes_behind_our_back(void)
{
	const char *path = fixture_path("model/" TWO);
	struct stat st;
	char byte = 'x';
	int fd = open(path, O_RDWR);

	cr_assert(fd >= 0 && fstat(fd, &st) == 0);
	usleep(20000); /* the clock of a file system ticks slowly */
	cr_assert_eq(pwrite(fd, &byte, 1, st.st_size - 1), 1);
	const struct timespec times[2] = { st.st_atim, st.st_mtim };
	cr_assert(futimens(fd, times) == 0 && close(fd) == 0);
}

/* A copy with the same times takes its place. */
static void shard_is_replaced(void)
{
	const char *path = fixture_path("model/" TWO), *copy = fixture_path("model/copy");
	struct stat st;
	size_t len;
	unsigned char *bytes = read_whole(path, &len);

	cr_assert_eq(stat(path, &st), 0);
	overwrite(copy, bytes, len);
	free(bytes);
	const struct timespec times[2] = { st.st_atim, st.st_mtim };
	cr_assert(utimensat(AT_FDCWD, copy, times, 0) == 0 && rename(copy, path) == 0);
}

static void index_is_rewritten(void)
{
	fixture_index(INDEX, "layers.0.a", ONE, "layers.0.b", ONE, "layers.1.a", TWO, NULL);
}

/* After the shard that nobody used, of which there would be a third then. */
static void index_is_gone(void)
{
	cr_assert_eq(unlink(fixture_path(INDEX)), 0);
	cr_assert_eq(unlink(fixture_path("model/model-more.safetensors")), 0);
}

static void another_shard_comes(void)
{
	fixture_names("model/model-more.safetensors", "y", NULL);
}

static void a_shard_that_nobody_used_goes(void)
{
	cr_assert_eq(unlink(fixture_path("model/model-extra.safetensors")), 0);
}

static void another_build(void)
{
	cache.build = "that";
}

Test(cache, stale)
{
	static void (*const changes[])(
		void) = { shard_is_longer,    shard_is_touched,	   shard_changes_behind_our_back, shard_is_replaced,
			  index_is_rewritten, another_shard_comes, a_shard_that_nobody_used_goes, index_is_gone,
			  another_build };

	expect(false, true);
	for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
		expect(true, false);
		changes[i]();
		cr_assert_eq(open_as(SL_FORMAT_AUTO), 0, "change %zu: %s", i, err.text);
		cr_assert(!cache.hit && cache.stored, "change %zu is seen, and stored (%s)", i, cache.why);
		expect_true();
		expect(true, false);
		expect_true();
	}
}

Test(cache, another_format_is_another_entry)
{
	fixture_names("model/consolidated.safetensors", "m", NULL);
	expect(false, true);
	cr_assert_eq(open_as(SL_FORMAT_MISTRAL), 0, "%s", err.text);
	cr_assert(!cache.hit && cache.stored && shards.n_tensors == 1);
	cr_assert_eq(open_as(SL_FORMAT_MISTRAL), 0, "%s", err.text);
	cr_assert(cache.hit && shards.n_tensors == 1);
	expect(true, false);
	expect_true();
}

Test(cache, a_refusal_stays_one)
{
	expect(false, true);
	cr_assert_eq(truncate(fixture_path("model/" ONE), 40), 0);
	cr_assert_lt(open_as(SL_FORMAT_AUTO), 0);
	cr_assert(!cache.hit && !cache.stored);
	cr_assert_eq(unlink(fixture_path("model/" ONE)), 0);
	cr_assert_eq(open_as(SL_FORMAT_AUTO), -ENOENT, "%s", err.text);
}

/* ---- damaged ---- */

Test(cache, any_bit_or_a_shorter_file)
{
	size_t len;

	expect(false, true);
	char *path = strdup(entry());
	unsigned char *bytes = read_whole(path, &len);
	cr_assert(len > 100 && len < 4096, "%zu", len);
	for (size_t i = 0; i < len; i++) {
		bytes[i] ^= (unsigned char)(1 << i % 8);
		overwrite(path, bytes, len);
		expect(false, true);
		bytes[i] ^= (unsigned char)(1 << i % 8);
		overwrite(path, bytes, i);
		expect(false, true);
		if (i % 64 == 0)
			expect_true();
	}
	expect_true();
	free(bytes);
	free(path);
}

/* The key that an opening of the model would have. */
static struct sl_catalogue_key key_now(struct sl_located *located)
{
	struct sl_catalogue_key key = { .build = cache.build, .located = located };
	struct stat st;

	cr_assert_eq(sl_locate(located, shards.dirfd, "model", SL_FORMAT_AUTO, &arena, &err), 0);
	cr_assert_eq(stat(fixture_path(INDEX), &st), 0);
	key.index = sl_identity_of(&st);
	return key;
}

static void expect_sound(const struct sl_shards *s)
{
	for (uint32_t i = 0; i < s->n_tensors; i++) {
		const struct sl_tensor *t = &s->tensors[i];
		uint64_t bits = sl_dtypes[t->dtype].bits;
		cr_assert(t->shard < s->n_shards && strlen(t->name) == t->name_len);
		cr_assert(i == 0 || strcmp(t[-1].name, t->name) < 0);
		cr_assert(t->off >= s->shards[t->shard].data_off && t->off + t->len <= s->shards[t->shard].size);
		for (unsigned d = 0; d < t->n_dims; d++)
			bits *= t->shape[d];
		cr_assert_eq(bits, t->len * 8);
	}
}

/* Were somebody to make the checksum fit as well: still nothing that lies outside its shard, and no crash. */
Test(cache, bytes_behind_a_right_checksum)
{
	struct sl_text raw = SL_TEXT_INIT;
	struct sl_located located;
	unsigned n_read = 0;

	expect(false, true);
	struct sl_catalogue_key key = key_now(&located);
	cr_assert(sl_catalogue_write(&raw, &key, &shards));
	unsigned char *bytes = malloc(raw.len);
	srand(1);
	for (unsigned round = 0; round < 60000; round++) {
		struct sl_shards read = { .dirfd = -1 };
		struct sl_arena own;
		size_t len = round % 4 ? raw.len : (size_t)rand() % raw.len;
		memcpy(bytes, raw.bytes, raw.len);
		for (int n = rand() % 3; n >= 0 && len; n--)
			bytes[(size_t)rand() % len] ^= (unsigned char)(1 + rand() % 255);
		sl_arena_init(&own);
		if (sl_catalogue_read(&read, &key, bytes, len, &own)) {
			n_read++;
			expect_sound(&read);
		} else {
			cr_assert(!read.tensors && !read.shards && !read.n_shards && !read.n_tensors);
		}
		sl_arena_release(&own);
	}
	cr_assert_gt(n_read, 100, "some changes are to a place or a name, and as good as before");
	free(bytes);
	sl_text_release(&raw);
}

Test(cache, too_large_to_be_true)
{
	struct sl_text raw = SL_TEXT_INIT, packed = SL_TEXT_INIT;
	size_t len;

	sl_text_add(&raw, "0123456789", 10);
	cr_assert(sl_cache_pack(&packed, &raw));
	unsigned char *back = sl_cache_unpack((unsigned char *)packed.bytes, packed.len, &len);
	cr_assert(back && len == 10 && memcmp(back, "0123456789", 10) == 0);
	free(back);
	packed.bytes[18] = 1; /* 64 KiB out of 40 bytes */
	cr_assert_null(sl_cache_unpack((unsigned char *)packed.bytes, packed.len, &len));
	sl_text_release(&raw);
	sl_text_release(&packed);
}

/* ---- the directory ---- */

Test(cache, somebody_elses_file_is_none)
{
	expect(false, true);
	cr_assert_eq(chmod(entry(), 0622), 0);
	expect(false, true);
	expect(true, false);
	if (geteuid() == 0) {
		cr_assert_eq(chown(entry(), 1, 1), 0);
		expect(false, true);
		expect(true, false);
	}
}

Test(cache, links_are_not_followed)
{
	struct stat st;

	expect(false, true);
	char *path = strdup(entry()), *aside = strdup(fixture_path("aside"));
	cr_assert_eq(rename(path, aside), 0);
	cr_assert_eq(symlink(aside, path), 0);
	cr_assert_eq(truncate(aside, 0), 0);
	expect(false, true);
	cr_assert(stat(aside, &st) == 0 && st.st_size == 0, "what the link led to is as it was");
	cr_assert(lstat(path, &st) == 0 && S_ISREG(st.st_mode));
	expect(true, false);
	cr_assert_eq(unlink(path), 0);
	cr_assert_eq(mkfifo(path, 0600), 0);
	expect(false, true);
	free(path);
	free(aside);
}

Test(cache, a_directory_that_takes_nothing)
{
	cr_assert_eq(rmdir(fixture_path("cache")), 0);
	expect(false, false);
	cr_assert(cache.why[0], "a reason is given");
	expect_true();
}

Test(cache, only_what_has_rested)
{
	cache.rest = 1000;
	expect(false, false);
	cr_assert(strstr(cache.why, "1000 seconds"), "%s", cache.why);
	cache.rest = 0;
	expect(false, true);
}

Test(cache, only_what_is_worth_it)
{
	cache.least = 6;
	expect(false, false);
	cr_assert_str_eq(cache.why, "");
	cache.least = 5;
	expect(false, true);
}

Test(cache, the_oldest_go_first)
{
	const struct timespec old[2] = { { 1000, 0 }, { 1000, 0 } }, older[2] = { { 500, 0 }, { 500, 0 } };
	static const char filler[8192];
	struct stat st;

	expect(false, true);
	cr_assert_eq(stat(entry(), &st), 0);
	fixture_file("cache/a.catalogue", filler, sizeof(filler));
	fixture_file("cache/b.catalogue", filler, sizeof(filler));
	fixture_file("cache/c.new", "c", 1);
	fixture_file("cache/other", "d", 1);
	cr_assert_eq(utimensat(AT_FDCWD, fixture_path("cache/a.catalogue"), old, 0), 0);
	cr_assert_eq(utimensat(AT_FDCWD, fixture_path("cache/b.catalogue"), older, 0), 0);
	cr_assert_eq(utimensat(AT_FDCWD, fixture_path("cache/c.new"), old, 0), 0);
	cache.room = (uint64_t)st.st_size + 2 * sizeof(filler) + 64;
	shard_is_touched();
	expect(false, true);
	cr_assert_eq(access(fixture_path("cache/b.catalogue"), F_OK), 0, "all have room");
	cr_assert_neq(access(fixture_path("cache/c.new"), F_OK), 0, "what a writer left an hour ago");
	cache.room -= 4096;
	shard_is_replaced();
	expect(false, true);
	cr_assert_neq(access(fixture_path("cache/b.catalogue"), F_OK), 0);
	cr_assert_eq(access(fixture_path("cache/a.catalogue"), F_OK), 0);
	cr_assert_eq(access(fixture_path("cache/other"), F_OK), 0, "it is not ours");
	cache.room = (uint64_t)st.st_size / 2;
	shard_is_touched();
	expect(false, false);
	cr_assert(strstr(cache.why, "too large"), "%s", cache.why);
}

static void remove_entries(void)
{
	DIR *dir = opendir(fixture_path("cache"));

	for (struct dirent *e; (e = readdir(dir));) {
		if (strstr(e->d_name, ".catalogue") && !strstr(e->d_name, ".new"))
			unlinkat(dirfd(dir), e->d_name, 0);
	}
	closedir(dir);
}

static void write_and_read(unsigned seed)
{
	for (unsigned i = 0; i < 50; i++) {
		if ((i + seed) % 3 == 0)
			cache.build = (i + seed) % 2 ? "this" : "that";
		if ((i + seed) % 5 == 0)
			remove_entries();
		if (open_as(SL_FORMAT_AUTO) || shards.n_tensors != 5)
			_exit(1);
	}
	_exit(0);
}

Test(cache, many_at_once)
{
	unsigned n = 0;
	int status;

	for (unsigned child = 0; child < 6; child++) {
		pid_t pid = fork();
		cr_assert_geq(pid, 0);
		if (pid == 0)
			write_and_read(child);
	}
	while (wait(&status) > 0)
		n += WIFEXITED(status) && WEXITSTATUS(status) == 0;
	cr_assert_eq(n, 6);
	cr_assert_eq(open_as(SL_FORMAT_AUTO), 0);
	expect(true, false);
	expect_true();
	DIR *dir = opendir(fixture_path("cache"));
	for (struct dirent *e; (e = readdir(dir));)
		cr_assert(!strstr(e->d_name, ".new"), "%s is left", e->d_name);
	closedir(dir);
}

/* Without memory for the cache there is none for the headers either. */
Test(cache, no_memory)
{
	unsigned n = 0;
	int ret;

	expect(false, true);
	do {
		sl_shards_close(&shards);
		err = (struct sl_error)SL_ERROR_INIT;
		sl_arena_fail_after(++n);
		ret = sl_shards_open_cached(&shards, fixture_path("model"), SL_FORMAT_AUTO, &cache, &arena, &err);
		sl_arena_fail_after(0);
		cr_assert(ret == 0 || ret == -ENOMEM, "allocation %u: %s", n, err.text);
	} while (ret);
	cr_assert_gt(n, 5);
	cr_assert(cache.hit);
	expect_true();
}
