/*
 * test_shards.c - which files of a directory are its weights, what an index may say, and reading them.
 *
 * The names B30 to B53 are those of public bug reports against other readers, restated as the smallest input that shows
 * the same fault.
 */
#include "fixture.h"

#include "slicer/index.h"
#include "slicer/shards.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define LEN(a) (sizeof(a) / sizeof((a)[0]))
#define INDEX  "model.safetensors.index.json"

static struct sl_arena arena;
static struct sl_shards shards;
static struct sl_error err;

static void setup(void)
{
	fixture_open();
	sl_arena_init(&arena);
	shards.dirfd = -1;
}

static void teardown(void)
{
	sl_shards_close(&shards);
	sl_arena_release(&arena);
	fixture_close();
}

TestSuite(shards, .init = setup, .fini = teardown, .timeout = 30);

static int open_dir(void)
{
	sl_shards_close(&shards);
	err = (struct sl_error)SL_ERROR_INIT;
	return sl_shards_open(&shards, fixture_dir(), SL_FORMAT_AUTO, &arena, &err);
}

static void expect_open(uint32_t n_shards, uint32_t n_tensors)
{
	cr_assert_eq(open_dir(), 0, "%s", err.text);
	cr_assert_eq(shards.n_shards, n_shards);
	cr_assert_eq(shards.n_tensors, n_tensors);
}

static void expect_says(const char *says)
{
	cr_assert(strstr(err.text, says), "'%s' lacks '%s'", err.text, says);
}

static void expect_fail(int errnum, const char *says)
{
	int ret = open_dir();

	cr_assert_eq(ret, -errnum, "got %d (%s)", ret, err.text);
	cr_assert_eq(shards.dirfd, -1, "nothing stays open");
	cr_assert_eq(shards.n_shards, 0);
	expect_says(says);
}

static void expect_note(const char *says)
{
	for (const struct sl_note *note = shards.notes; note; note = note->next) {
		if (strstr(note->text, says))
			return;
	}
	cr_assert_fail("no note says '%s'; the first is '%s'", says, shards.notes ? shards.notes->text : "");
}

/* The file that a tensor was found in. */
static const char *home(const char *name)
{
	const struct sl_tensor *tensor = sl_shards_find(&shards, name);

	return tensor ? shards.shards[tensor->shard].name : "nowhere";
}

static void two_shards(void)
{
	fixture_names("model-00001-of-00002.safetensors", "a", "b", NULL);
	fixture_names("model-00002-of-00002.safetensors", "c", NULL);
}

static void index_of_two(void)
{
	fixture_index(INDEX, "a", "model-00001-of-00002.safetensors", "b", "model-00001-of-00002.safetensors", "c",
		      "model-00002-of-00002.safetensors", NULL);
}

static void set_size(const char *name, off_t size)
{
	cr_assert_eq(truncate(fixture_path(name), size), 0);
}

Test(shards, one_file)
{
	unsigned char byte;

	fixture_names("model.safetensors", "b", "a", NULL);
	expect_open(1, 2);
	cr_assert_eq(shards.format, SL_FORMAT_HF);
	cr_assert_str_eq(shards.tensors[0].name, "a");
	cr_assert_null(sl_shards_find(&shards, "c"));
	const struct sl_tensor *a = sl_shards_find(&shards, "a");
	cr_assert_eq(sl_shard_read(&shards.shards[0], &byte, a->off + 3, 1, &err), 0, "%s", err.text);
	cr_assert_eq(byte, fixture_byte("a", 3));
	cr_assert_null(shards.notes);
}

Test(shards, index_decides)
{
	two_shards();
	index_of_two();
	expect_open(2, 3);
	cr_assert_str_eq(home("c"), "model-00002-of-00002.safetensors");
	cr_assert_null(shards.notes);
}

Test(shards, B30_one_bad_shard)
{
	fixture_names("model-00001-of-00003.safetensors", "a", NULL);
	fixture_raw("model-00002-of-00003.safetensors",
		    "{\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[4,0]}}", 4);
	fixture_names("model-00003-of-00003.safetensors", "c", NULL);
	expect_fail(EINVAL, "model-00002-of-00003.safetensors: tensor 'b': bytes [4, 0) of 4 are no range");
	fixture_index(INDEX, "a", "model-00001-of-00003.safetensors", "b", "model-00002-of-00003.safetensors", NULL);
	expect_fail(EINVAL, "model-00002-of-00003.safetensors: tensor 'b'");
}

Test(shards, B31_lfs_pointer)
{
	fixture_copy("model-00000-of-00002.safetensors", "bad-lfs-pointer.safetensors");
	expect_fail(EINVAL,
		    "model-00000-of-00002.safetensors: is a git-lfs pointer (real size 4792272488): run git lfs pull");
	fixture_names("model.safetensors", "a", NULL);
	fixture_copy(INDEX, "bad-lfs-pointer.safetensors");
	expect_fail(EINVAL, INDEX ": is a git-lfs pointer (real size 4792272488)");
}

Test(shards, B32_error_pages)
{
	static const char *const pages[][2] = { { "<?xml version=\"1.0\"?><Error/>", "is an XML text" },
						{ "<!DOCTYPE html><html></html>", "is an HTML page" },
						{ "{\"error\":\"Entry not found\"}", "is a server's error message" } };

	for (size_t i = 0; i < LEN(pages); i++) {
		char says[200];
		fixture_text("model.safetensors", pages[i][0]);
		snprintf(says, sizeof(says), "model.safetensors: %s", pages[i][1]);
		expect_fail(EINVAL, says);
	}
	fixture_names("model.safetensors", "a", NULL);
	for (size_t i = 0; i < LEN(pages); i++) {
		char says[200];
		fixture_text(INDEX, pages[i][0]);
		snprintf(says, sizeof(says), INDEX ": %s", pages[i][1]);
		expect_fail(EINVAL, says);
	}
}

Test(shards, B33_dangling_symlink)
{
	static const char target[] = "/home/nobody/.cache/blobs/model.safetensors";

	cr_assert_eq(symlink(target, fixture_path("model.safetensors")), 0);
	expect_fail(ENOENT,
		    "model.safetensors: is a dangling symlink to '/home/nobody/.cache/blobs/model.safetensors'");
	fixture_index(INDEX, "a", "model.safetensors", NULL);
	expect_fail(ENOENT,
		    "'model.safetensors' (a dangling symlink to '/home/nobody/.cache/blobs/model.safetensors')");
}

Test(shards, symlinks_are_followed)
{
	fixture_names("blobs/0123abcd", "a", NULL);
	mkdir(fixture_path("snapshot"), 0777);
	cr_assert_eq(symlink("../blobs/0123abcd", fixture_path("snapshot/model.safetensors")), 0);
	cr_assert_eq(sl_shards_open(&shards, fixture_path("snapshot"), SL_FORMAT_AUTO, &arena, &err), 0, "%s",
		     err.text);
	cr_assert_eq(shards.n_tensors, 1);
}

Test(shards, B35_missing_shard)
{
	two_shards();
	index_of_two();
	cr_assert_eq(unlink(fixture_path("model-00002-of-00002.safetensors")), 0);
	expect_fail(ENOENT, "1 of the 2 shards that " INDEX
			    " names are missing or empty: 'model-00002-of-00002.safetensors' (not there)");
	fixture_text("model-00002-of-00002.safetensors", "");
	expect_fail(ENOENT, "'model-00002-of-00002.safetensors' (0 bytes)");
	cr_assert_eq(unlink(fixture_path(INDEX)), 0);
	expect_fail(EINVAL, "model-00002-of-00002.safetensors: is empty (0 bytes)");
}

Test(shards, B35_missing_shards_are_all_listed)
{
	fixture_names("model-1.safetensors", "a", NULL);
	fixture_index(INDEX, "a", "model-1.safetensors", "b", "x2", "c", "x3", "d", "x4", "e", "x5", "f", "x6", "g",
		      "x7", "h", "x8", NULL);
	expect_fail(ENOENT,
		    "7 of the 8 shards that " INDEX " names are missing or empty: 'x2' (not there), 'x3' (not there), "
		    "'x4' (not there), 'x5' (not there), 'x6' (not there) and 2 more");
}

Test(shards, B35_split_without_index_incomplete)
{
	fixture_names("model-00001-of-00002.safetensors", "a", NULL);
	expect_fail(ENOENT, "only 1 of the 2 shards that 'model-00001-of-00002.safetensors' belongs to are there");
}

Test(shards, B36_stale_index)
{
	two_shards();
	fixture_index(INDEX, "a", "model-00001-of-00004.safetensors", "b", "model-00002-of-00004.safetensors", "c",
		      "model-00003-of-00004.safetensors", "d", "model-00004-of-00004.safetensors", NULL);
	expect_fail(ENOENT, INDEX " is stale: 0 of 4 named shards exist, 2 other shards found: "
				  "'model-00001-of-00002.safetensors', 'model-00002-of-00002.safetensors'");
}

Test(shards, B37_escaping_names)
{
	static const char *const names[][2] = {
		{ "../secret.safetensors", "has a '..' in it" },
		{ "sub/../../secret.safetensors", "has a '..' in it" },
		{ "sub/..", "has a '..' in it" },
		{ "/abs/x.safetensors", "is absolute" },
		{ "..\\\\x.safetensors", "has a backslash in it" },
		{ "C:\\\\x.safetensors", "has a backslash in it" },
		{ "C:x", "begins with a drive letter" },
		{ "", "is empty" },
		{ ".", "has an empty or '.' component" },
		{ "sub//x.safetensors", "has an empty or '.' component" },
		{ "sub/", "has an empty or '.' component" },
		{ "a\\u0000b", "has a NUL in it" },
		{ "\\u002e\\u002e/secret.safetensors", "has a '..' in it" },
	};

	fixture_names("secret.safetensors", "a", NULL);
	mkdir(fixture_path("model"), 0777);
	for (size_t i = 0; i < LEN(names); i++) {
		fixture_index("model/" INDEX, "a", names[i][0], NULL);
		err = (struct sl_error)SL_ERROR_INIT;
		int ret = sl_shards_open(&shards, fixture_path("model"), SL_FORMAT_AUTO, &arena, &err);
		cr_assert_eq(ret, -EINVAL, "%s", names[i][0]);
		expect_says(names[i][1]);
		expect_says("of tensor 'a'");
		expect_says(INDEX);
	}
}

Test(shards, B37_sub_directory)
{
	fixture_names("sub/x.safetensors", "a", NULL);
	fixture_index(INDEX, "a", "sub/x.safetensors", NULL);
	expect_open(1, 1);
	cr_assert_str_eq(home("a"), "sub/x.safetensors");
}

Test(shards, B38_two_formats)
{
	two_shards();
	fixture_names("consolidated.safetensors", "tok", NULL);
	expect_open(2, 3);
	cr_assert_eq(shards.format, SL_FORMAT_HF, "without an index");
	index_of_two();
	expect_open(2, 3);
	cr_assert_null(shards.notes);
	sl_shards_close(&shards);
	cr_assert_eq(sl_shards_open(&shards, fixture_dir(), SL_FORMAT_MISTRAL, &arena, &err), 0, "%s", err.text);
	cr_assert_eq(shards.format, SL_FORMAT_MISTRAL);
	cr_assert_str_eq(home("tok"), "consolidated.safetensors");
	cr_assert_eq(shards.n_tensors, 1);
}

Test(shards, B39_no_recursion)
{
	fixture_names("model.safetensors", "a", NULL);
	fixture_names("original/model.safetensors", "a", "b", NULL);
	expect_open(1, 1);
}

Test(shards, B40_stray_files)
{
	two_shards();
	index_of_two();
	fixture_names("model.safetensors", "a", "b", "c", NULL);
	expect_open(2, 3);
	cr_assert_str_eq(home("a"), "model-00001-of-00002.safetensors");
	expect_note("'model.safetensors' exists but is not in " INDEX);
	cr_assert_eq(unlink(fixture_path(INDEX)), 0);
	expect_fail(EINVAL, "tensor 'a' is in both 'model-00001-of-00002.safetensors' and 'model.safetensors'");
}

Test(shards, B40_two_splits)
{
	two_shards();
	for (int i = 1; i <= 3; i++) {
		char name[60], tensor[] = { (char)('a' + i - 1), '\0' };
		snprintf(name, sizeof(name), "model-0000%d-of-00003.safetensors", i);
		fixture_names(name, tensor, NULL);
	}
	expect_fail(EINVAL,
		    "tensor 'a' is in both 'model-00001-of-00002.safetensors' and 'model-00001-of-00003.safetensors'");
	fixture_names("model-00001-of-00003.safetensors", "x", NULL);
	fixture_names("model-00002-of-00003.safetensors", "y", NULL);
	fixture_names("model-00003-of-00003.safetensors", "z", NULL);
	expect_fail(EINVAL,
		    "'model-00001-of-00002.safetensors' and 'model-00001-of-00003.safetensors' belong to different");
}

Test(shards, B41_index_chooses_between_copies)
{
	fixture_names("model-00001-of-00002.safetensors", "a", "b", NULL);
	fixture_names("model-00002-of-00002.safetensors", "b", "c", NULL);
	fixture_index(INDEX, "c", "model-00002-of-00002.safetensors", "b", "model-00002-of-00002.safetensors", "a",
		      "model-00001-of-00002.safetensors", NULL);
	expect_open(2, 3);
	cr_assert_str_eq(home("b"), "model-00002-of-00002.safetensors");
	expect_note("1 tensors are in shards that " INDEX
		    " does not give them (the first is 'b' in 'model-00001-of-00002.safetensors')");
}

Test(shards, B42_tensor_in_two_files)
{
	fixture_names("model-00001-of-00002.safetensors", "a", "b", NULL);
	fixture_names("model-00002-of-00002.safetensors", "b", "c", NULL);
	expect_fail(EINVAL,
		    "tensor 'b' is in both 'model-00001-of-00002.safetensors' and 'model-00002-of-00002.safetensors'");
}

Test(shards, shard_lacks_tensors)
{
	two_shards();
	fixture_index(INDEX, "a", "model-00001-of-00002.safetensors", "c", "model-00001-of-00002.safetensors", "d",
		      "model-00002-of-00002.safetensors", NULL);
	expect_fail(ENOENT,
		    "2 tensors are not in the shards that " INDEX
		    " gives them: 'c' (model-00001-of-00002.safetensors), 'd' (model-00002-of-00002.safetensors)");
}

Test(shards, B44_shard_not_in_index)
{
	two_shards();
	fixture_index(INDEX, "a", "model-00001-of-00002.safetensors", "b", "model-00001-of-00002.safetensors", NULL);
	expect_open(1, 2);
	expect_note("shard 2 of 2, 'model-00002-of-00002.safetensors', exists but is not in " INDEX);
}

Test(shards, B45_unusual_names)
{
	fixture_names("model.safetensors-00001-of-00001.safetensors", "a", NULL);
	expect_open(1, 1);
	fixture_names("model-00000-of-00002.safetensors", "b", NULL);
	fixture_names("model-00001-of-00002.safetensors", "c", NULL);
	fixture_names("model-00002-of-00002.safetensors", "d", NULL);
	cr_assert_eq(unlink(fixture_path("model.safetensors-00001-of-00001.safetensors")), 0);
	expect_open(3, 3);
	fixture_names("whatever.bin", "x", NULL);
	fixture_index(INDEX, "b", "model-00000-of-00002.safetensors", "x", "whatever.bin", NULL);
	expect_open(2, 2);
}

Test(shards, B46_mistral_index_alone)
{
	fixture_names("consolidated-00001-of-00002.safetensors", "a", NULL);
	fixture_names("consolidated-00002-of-00002.safetensors", "b", NULL);
	fixture_index("consolidated.safetensors.index.json", "a", "consolidated-00001-of-00002.safetensors", "b",
		      "consolidated-00002-of-00002.safetensors", NULL);
	expect_open(2, 2);
	cr_assert_eq(shards.format, SL_FORMAT_MISTRAL);
}

Test(shards, B47_no_weights)
{
	expect_fail(ENOENT, "is an empty directory");
	fixture_text("a.bin", "x");
	fixture_text("b.bin", "x");
	expect_fail(ENOENT, "has no safetensors weights: found 2 .bin files; only safetensors is supported");
	fixture_text("config.json", "{}");
	fixture_text("c.pth", "x");
	fixture_text("d.gguf", "x");
	expect_fail(ENOENT, "found 2 .bin files, 1 .pth file, 1 .gguf file, 1 file of another kind; only safetensors");
	const char *file = fixture_path("a.bin"), *none = fixture_path("none");
	err = (struct sl_error)SL_ERROR_INIT;
	cr_assert_eq(sl_shards_open(&shards, file, SL_FORMAT_AUTO, &arena, &err), -ENOTDIR);
	expect_says("is a file: give the directory that holds the checkpoint");
	err = (struct sl_error)SL_ERROR_INIT;
	cr_assert_eq(sl_shards_open(&shards, none, SL_FORMAT_AUTO, &arena, &err), -ENOENT);
	expect_says("no such directory");
}

Test(shards, B48_index_unreadable)
{
	static const struct {
		const char *text, *says;
		size_t len;
	} indexes[] = {
		{ "{\"weight_map\":{\"a\":\"model.safetensors\"}}x", "JSON: ", 0 },
		{ "{\"weight_map\":{\"a\":\"model.safetensors\"}}{}", "JSON: byte 40 (0x7b) stands where the end", 0 },
		{ "", "is empty (0 bytes)", 0 },
		{ "\xFF\xFE{\0}\0", "is UTF-16", 6 },
		{ "{\0}\0", "JSON: byte 1 (0x00) is a NUL", 4 },
		{ "{}", "has no weight_map", 0 },
		{ "[]", "is JSON, but no object", 0 },
		{ "{\"weight_map\":[]}", "weight_map (byte 14) is no object", 0 },
		{ "{\"weight_map\":{\"a\":1}}", "weight_map: the value of 'a' (byte 19) is no string", 0 },
		{ "{\"weight_map\":{\"a\":null}}", "the value of 'a' (byte 19) is no string", 0 },
		{ "{\"weight_map\":{}}", "weight_map (byte 14) is empty", 0 },
		{ "{\"weight_map\":{\"a\":\"x\",\"a\":\"x\"}}", "weight_map: tensor 'a' is there twice", 0 },
		{ "{\"weight_map\":{\"a\":\"x\"},\"weight_map\":{}}", "weight_map is there twice, again at byte 25",
		  0 },
		{ "{\"weight_map\":{\"a\\u0000\":\"x\"}}", "weight_map: tensor 'a' (byte 16): a name with a NUL", 0 },
	};

	fixture_names("model.safetensors", "a", NULL);
	for (size_t i = 0; i < LEN(indexes); i++) {
		fixture_file(INDEX, indexes[i].text, indexes[i].len ? indexes[i].len : strlen(indexes[i].text));
		expect_fail(EINVAL, indexes[i].says);
		expect_says(INDEX ": ");
	}
	fixture_text(INDEX, "\xEF\xBB\xBF{\r\n\"weight_map\": {\r\n\"a\": \"model.safetensors\"\r\n}\r\n}\r\n");
	expect_open(1, 1);
	cr_assert_eq(unlink(fixture_path(INDEX)), 0);
	cr_assert_eq(mkdir(fixture_path(INDEX), 0777), 0);
	expect_fail(EINVAL, INDEX ": is a directory");
}

Test(shards, B49_total_size_is_advice)
{
	static const struct {
		const char *metadata, *note;
	} rows[] = {
		{ "{}", NULL },
		{ "null", NULL },
		{ "{\"total_size\":null,\"total_parameters\":4,\"mergekit_version\":\"0.1\"}", NULL },
		{ "{\"total_size\":4}", NULL },
		{ "{\"total_size\":8}", INDEX " gives a total_size of 8 bytes, its tensors have 4" },
		{ "{\"total_size\":4.0}", "total_size '4.0' is no whole number" },
		{ "{\"total_size\":\"4\"}", "total_size '4' is no whole number" },
		{ "[]", NULL },
	};

	fixture_names("model.safetensors", "a", NULL);
	for (size_t i = 0; i < LEN(rows); i++) {
		char text[300];
		snprintf(text, sizeof(text), "{\"metadata\":%s,\"weight_map\":{\"a\":\"model.safetensors\"},\"x\":[]}",
			 rows[i].metadata);
		fixture_text(INDEX, text);
		expect_open(1, 1);
		if (rows[i].note)
			expect_note(rows[i].note);
		else
			cr_assert_null(shards.notes, "%s", rows[i].metadata);
	}
}

Test(shards, B50_files_of_another_purpose)
{
	fixture_names("model.safetensors", "a", NULL);
	fixture_names("adapter_model.safetensors", "base_model.model.a.lora_A.weight", NULL);
	fixture_names("optimizer.safetensors", "a", NULL);
	fixture_names("style.lora.safetensors", "a", NULL);
	expect_open(1, 1);
	cr_assert_eq(unlink(fixture_path("model.safetensors")), 0);
	expect_fail(ENOENT, "has no safetensors weights: found 1 adapter file, 1 LoRA file, 1 optimizer file");
}

Test(shards, B51_debris)
{
	static const char *const names[] = { "model.safetensors.incomplete", "model-2.safetensors.tmp",
					     "model.safetensors~", "._model.safetensors", "model.safetensors.lock" };

	fixture_names("model.safetensors", "a", NULL);
	for (size_t i = 0; i < LEN(names); i++) {
		fixture_names(names[i], "a", NULL);
		cr_assert(sl_name_is_debris(names[i]));
	}
	fixture_text(".cache/huggingface/download/model.safetensors.metadata", "x");
	expect_open(1, 1);
	cr_assert(!sl_name_is_debris("model.safetensors"));
	cr_assert(!sl_name_is_debris("tokenizer.json"));
	fixture_names("model-1.safetensors.incomplete", "b", NULL);
	fixture_index(INDEX, "a", "model.safetensors", "b", "model-1.safetensors", NULL);
	expect_fail(ENOENT, "'model-1.safetensors' (only its unfinished download, .incomplete)");
}

Test(shards, B52_not_regular)
{
	cr_assert_eq(mkdir(fixture_path("model.safetensors"), 0777), 0);
	expect_fail(EINVAL, "model.safetensors: is a directory, not a regular file");
	cr_assert_eq(rmdir(fixture_path("model.safetensors")), 0);
	cr_assert_eq(mkfifo(fixture_path("model.safetensors"), 0666), 0);
	expect_fail(EINVAL, "model.safetensors: is a FIFO, not a regular file");
	cr_assert_eq(unlink(fixture_path("model.safetensors")), 0);
	cr_assert_eq(symlink("/dev/zero", fixture_path("model.safetensors")), 0);
	expect_fail(EINVAL, "model.safetensors: is a device, not a regular file");
	cr_assert_eq(unlink(fixture_path("model.safetensors")), 0);
	cr_assert_eq(symlink("model.safetensors", fixture_path("model.safetensors")), 0);
	expect_fail(ELOOP, "model.safetensors: is a symlink to 'model.safetensors', which cannot be opened: ");
}

Test(shards, B52_permission_denied)
{
	uid_t user = geteuid();

	fixture_names("model.safetensors", "a", NULL);
	cr_assert_eq(chmod(fixture_path("model.safetensors"), 0), 0);
	cr_assert_eq(chmod(fixture_dir(), 0755), 0);
	if (user == 0 && seteuid(65534)) /* root may read anything */
		cr_skip_test("cannot become another user");
	int ret = open_dir();
	cr_assert(user != 0 || seteuid(0) == 0);
	cr_assert_eq(ret, -EACCES, "%s", err.text);
	expect_says("model.safetensors: cannot be opened: Permission denied");
}

Test(shards, B53_names_are_bytes)
{
	static const char *const letters[] = { "B", "b", "H", "h", "I", "i" };
	char name[40], data[40];

	for (unsigned i = 0; i < LEN(letters); i++) {
		snprintf(name, sizeof(name), "model-%u.safetensors", i);
		snprintf(data, sizeof(data), "st-%s.safetensors", letters[i]);
		fixture_copy(name, data);
	}
	expect_open(LEN(letters), LEN(letters));
	for (unsigned i = 0; i < LEN(letters); i++) {
		snprintf(name, sizeof(name), "model-%u.safetensors", i);
		cr_assert_str_eq(home(letters[i]), name);
	}
}

Test(shards, real_files)
{
	static const struct {
		const char *name;
		uint32_t n;
	} files[] = { { "fst-a.safetensors", 1 },
		      { "runai-empty.safetensors", 0 },
		      { "runai-ten-dtypes.safetensors", 10 },
		      { "mlverse-hello.safetensors", 2 },
		      { "st-d.safetensors", 1 },
		      { "st-e.safetensors", 1 },
		      { "st-f.safetensors", 1 } };

	for (size_t i = 0; i < LEN(files); i++) {
		fixture_copy("model.safetensors", files[i].name);
		expect_open(1, files[i].n);
	}
	fixture_copy("model.safetensors", "bad-syoyo-length.safetensors");
	expect_fail(EINVAL, "model.safetensors: gives its header 1000 bytes (cap 100000000), but the file has 88");
}

Test(shards, single_other_file)
{
	fixture_names("weights.safetensors", "a", NULL);
	expect_open(1, 1);
	cr_assert_eq(shards.format, SL_FORMAT_HF);
	fixture_names("other.safetensors", "b", NULL);
	expect_fail(EINVAL, "2 files could be the weights: 'other.safetensors', 'weights.safetensors'");
	fixture_names("consolidated.safetensors", "c", NULL);
	expect_open(1, 1);
	cr_assert_eq(shards.format, SL_FORMAT_MISTRAL);
	sl_shards_close(&shards);
	unlink(fixture_path("consolidated.safetensors"));
	cr_assert_eq(sl_shards_open(&shards, fixture_dir(), SL_FORMAT_MISTRAL, &arena, &err), -ENOENT);
	expect_says("has no consolidated*.safetensors weights: found 2 other .safetensors files");
}

Test(shards, header_longer_than_the_first_read)
{
	struct fixture_tensor tensors[2000];
	static char names[LEN(tensors)][40];

	for (size_t i = 0; i < LEN(tensors); i++) {
		snprintf(names[i], sizeof(names[i]), "layer.%zu", i);
		tensors[i] = (struct fixture_tensor){ .name = names[i], .dtype = "U8", .n_dims = 1, .shape = { 1 } };
	}
	fixture_tensors("model.safetensors", tensors, LEN(tensors));
	expect_open(1, LEN(tensors));
	cr_assert_gt(shards.shards[0].data_off, 64 << 10);
	for (size_t i = 0; i < LEN(tensors); i++) {
		unsigned char byte;
		const struct sl_tensor *tensor = sl_shards_find(&shards, names[i]);
		cr_assert_not_null(tensor);
		cr_assert_eq(sl_shard_read(&shards.shards[0], &byte, tensor->off, 1, &err), 0);
		cr_assert_eq(byte, fixture_byte(names[i], 0));
	}
}

Test(shards, more_files_than_the_soft_limit)
{
	struct rlimit limit;
	char name[60], tensor[20];

	getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = 32;
	for (int i = 0; i < 64; i++) {
		snprintf(name, sizeof(name), "model-%05d-of-00064.safetensors", i);
		snprintf(tensor, sizeof(tensor), "t%d", i);
		fixture_names(name, tensor, NULL);
	}
	setrlimit(RLIMIT_NOFILE, &limit);
	expect_open(64, 64);
}

Test(shards, read_past_the_end)
{
	unsigned char bytes[64];

	fixture_names("model.safetensors", "a", NULL);
	expect_open(1, 1);
	uint64_t size = shards.shards[0].size;
	cr_assert_eq(sl_shard_read(&shards.shards[0], bytes, size - 4, 4, &err), 0);
	cr_assert_eq(sl_shard_read(&shards.shards[0], bytes, size - 4, 5, &err), -EIO);
	expect_says("model.safetensors: at byte ");
	cr_assert_eq(sl_shard_read(&shards.shards[0], bytes, UINT64_MAX, 2, NULL), -EIO);
}

Test(shards, B163_truncated_while_open)
{
	unsigned char bytes[4];
	char says[100];

	fixture_names("model.safetensors", "a", NULL);
	expect_open(1, 1);
	uint64_t size = shards.shards[0].size;
	set_size("model.safetensors", (off_t)size - 2);
	cr_assert_eq(sl_shard_read(&shards.shards[0], bytes, size - 4, 4, &err), -ESTALE);
	snprintf(says, sizeof(says), "model.safetensors: at byte %d: changed while mounted (size was %d, is %d)",
		 (int)size - 4, (int)size, (int)size - 2);
	expect_says(says);
	cr_assert_eq(sl_shard_read(&shards.shards[0], bytes, 0, 4, NULL), -ESTALE,
		     "also where the bytes are still there");
}

Test(shards, B164_replaced_or_touched_while_open)
{
	const struct timespec times[2] = { { 1, 0 }, { 1, 0 } };
	unsigned char byte;

	fixture_names("model.safetensors", "a", NULL);
	expect_open(1, 1);
	fixture_names("new", "b", "c", NULL);
	cr_assert_eq(rename(fixture_path("new"), fixture_path("model.safetensors")), 0);
	cr_assert_eq(sl_shard_read(&shards.shards[0], &byte, shards.tensors[0].off, 1, &err), 0,
		     "the old file is held");
	cr_assert_eq(byte, fixture_byte("a", 0));
	expect_open(1, 2);
	cr_assert_eq(utimensat(AT_FDCWD, fixture_path("model.safetensors"), times, 0), 0);
	cr_assert_eq(sl_shard_read(&shards.shards[0], &byte, 0, 1, &err), -ESTALE);
	expect_says("changed while mounted (modified at 1000000000 ns, was ");
}

Test(shards, offsets_beyond_4_gib)
{
	static const char json[] = "{\"a\":{\"dtype\":\"U8\",\"shape\":[6442450944],\"data_offsets\":[0,6442450944]}}";
	static const uint64_t places[] = { 0, (1ull << 31) - 1, 1ull << 31, 1ull << 32, 6442450943 };
	unsigned char byte;

	fixture_raw("model.safetensors", json, 0);
	const uint64_t data = 8 + strlen(json);
	set_size("model.safetensors", (off_t)(data + 6442450944));
	int fd = open(fixture_path("model.safetensors"), O_WRONLY);
	for (size_t i = 0; i < LEN(places); i++)
		cr_assert_eq(pwrite(fd, &(unsigned char){ (unsigned char)(i + 1) }, 1, (off_t)(data + places[i])), 1);
	close(fd);
	expect_open(1, 1);
	for (size_t i = 0; i < LEN(places); i++) {
		cr_assert_eq(sl_shard_read(&shards.shards[0], &byte, shards.tensors[0].off + places[i], 1, &err), 0);
		cr_assert_eq(byte, i + 1);
	}
}

Test(shards, no_memory)
{
	int ret = -ENOMEM;

	two_shards();
	fixture_names("model.safetensors", "a", NULL);
	fixture_index(INDEX, "b", "model-00001-of-00002.safetensors", "a", "model-00001-of-00002.safetensors", "c",
		      "model-00002-of-00002.safetensors", NULL);
	for (unsigned n = 1; ret; n++) {
		sl_arena_release(&arena);
		sl_arena_fail_after(n);
		ret = open_dir();
		sl_arena_fail_after(0);
		cr_assert(ret == 0 || (ret == -ENOMEM && err.errnum == ENOMEM), "%u: %d %s", n, ret, err.text);
		cr_assert_lt(n, 200);
	}
	cr_assert_eq(shards.n_tensors, 3);
	/* Nothing was left open on the way. */
	sl_shards_close(&shards);
	int before = open("/dev/null", O_RDONLY);
	cr_assert_lt(before, 32);
	close(before);
}

Test(shards, index_without_files)
{
	static const char text[] = "{\"weight_map\":{\"b\":\"y\",\"a\":\"x\",\"c\":\"y\",\"d\":\"x\"}}";
	struct sl_note *notes = NULL;
	struct sl_index index;

	cr_assert_eq(sl_index_parse(&index, text, strlen(text), &arena, &notes, &err), 0, "%s", err.text);
	cr_assert_eq(index.n, 4);
	cr_assert_eq(index.n_files, 2);
	cr_assert_str_eq(index.entries[1].tensor, "b");
	cr_assert_str_eq(index.files[index.entries[1].shard], "y");
	cr_assert(sl_index_names(&index, "x"));
	cr_assert(!sl_index_names(&index, "z"));
	cr_assert(!index.has_total);
}

/* Whatever the hint is. */
Test(shards, seek_near)
{
	static const char *const names[] = { "", "a", "aa", "b", "c", "ca", "d", "e", "zz" };

	fixture_names("model.safetensors", "a", "b", "ba", "c", "d", "da", "db", "e", "f", "g", "z", NULL);
	expect_open(1, 11);
	for (size_t i = 0; i < LEN(names); i++) {
		uint32_t want = sl_shards_seek(&shards, names[i]);
		for (uint32_t hint = 0; hint < 14; hint++)
			cr_assert_eq(sl_shards_seek_near(&shards, names[i], hint), want, "%s from %u", names[i], hint);
		cr_assert_eq(sl_shards_seek_near(&shards, names[i], UINT32_MAX), want);
		cr_assert(want == 11 || strcmp(shards.tensors[want].name, names[i]) >= 0);
		cr_assert(want == 0 || strcmp(shards.tensors[want - 1].name, names[i]) < 0);
	}
}

/* ---- an index read against the headers, or by itself ---- */

#define N_NAMES 24

/* An index of shards that it fits, mostly. */
static size_t random_index(char *text, size_t cap)
{
	size_t len = (size_t)snprintf(text, cap, "{\n  \"metadata\": {\"total_size\": %d},\n  \"weight_map\": {",
				      4 * N_NAMES - (rand() % 4 == 0));
	const char *comma = "";

	for (unsigned i = 0; i < N_NAMES; i++) {
		unsigned shown = rand() % 60 ? i : (unsigned)rand() % N_NAMES, shard = rand() % 80 ? shown % 3 : 1;
		if (rand() % 100 == 0)
			continue;
		len += (size_t)snprintf(text + len, cap - len,
					"%s\n    \"layers.%02u.x\":%s\"model-0000%u-of-00003.safetensors\"", comma,
					shown, rand() % 9 ? " " : "", shard + 1);
		comma = ",";
	}
	return len + (size_t)snprintf(text + len, cap - len, "\n  }\n}%s", rand() % 2 ? "\n" : "");
}

static void three_shards(void)
{
	struct fixture_tensor tensors[N_NAMES];
	static char names[N_NAMES][16];

	for (unsigned shard = 0; shard < 3; shard++) {
		unsigned n = 0;
		char file[64];
		for (unsigned i = shard; i < N_NAMES; i += 3) {
			snprintf(names[i], sizeof(names[i]), "layers.%02u.x", i);
			tensors[n++] =
				(struct fixture_tensor){ .name = names[i], .dtype = "U8", .n_dims = 1, .shape = { 4 } };
		}
		snprintf(file, sizeof(file), "model-0000%u-of-00003.safetensors", shard + 1);
		fixture_tensors(file, tensors, n);
	}
}

/* What an opening said, as text. */
static char *told(void)
{
	int ret = open_dir();
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	fprintf(out, "%d %s\n", ret, err.text);
	for (uint32_t i = 0; !ret && i < shards.n_tensors; i++)
		fprintf(out, "%s %s %zu\n", shards.tensors[i].name, shards.shards[shards.tensors[i].shard].name,
			(size_t)shards.tensors[i].off);
	for (const struct sl_note *note = shards.notes; !ret && note; note = note->next)
		fprintf(out, "%s\n", note->text);
	fclose(out);
	return text;
}

/* With a mark of its encoding in front an index is not read against the headers (index_walk.c), and says the same. */
Test(shards, both_ways_of_reading_an_index_say_the_same, .timeout = 120)
{
	static const char bytes[] = "\"\\{}[],: 0123456789eE.-+x\x01\xc3";
	static char text[8192] = "\xEF\xBB\xBF";
	unsigned n_good = 0;

	srand(11);
	three_shards();
	for (unsigned round = 0; round < 3000; round++) {
		size_t len = random_index(text + 3, sizeof(text) - 3);
		for (int n = rand() % 3; n > 0 && round % 2; n--) {
			size_t at = 3 + (size_t)rand() % len;
			if (rand() % 3 == 0)
				memmove(text + at, text + at + 1, 3 + len-- - at);
			else
				text[at] = bytes[(size_t)rand() % (sizeof(bytes) - 1)];
		}
		fixture_file(INDEX, text + 3, len);
		char *one = told();
		fixture_file(INDEX, text, len + 3);
		char *other = told();
		cr_assert_str_eq(one, other);
		n_good += one[0] == '0';
		free(one);
		free(other);
		sl_shards_close(&shards);
		sl_arena_release(&arena);
		sl_arena_init(&arena);
	}
	cr_assert(n_good > 500 && n_good < 2900, "%u good ones", n_good);
}
