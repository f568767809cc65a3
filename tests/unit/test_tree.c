/*
 * test_tree.c - the names under a mount: which there are, in which order, of which size, and what is said of the
 * others.
 */
#include "checkpoint.h"
#include "family.h"

#include "fs/tree.h"
#include "fs/tree_impl.h"
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(tree, .init = checkpoint_setup, .fini = checkpoint_teardown, .timeout = 120);

static struct sl_model *model;
static struct tree *tree;

static void begin_with(const struct tree_options *options)
{
	struct sl_error err = SL_ERROR_INIT;

	model = family_open(family_find("llama"), "BF16", "bfloat16", false);
	cr_assert_eq(tree_open(&tree, model, options, &err), 0, "%s", err.text);
}

static void begin(void)
{
	begin_with(&(struct tree_options){ .mountpoint = NULL });
}

static void end(void)
{
	tree_close(tree);
	sl_model_close(model);
}

static struct node *find(const char *path)
{
	struct sl_error err = SL_ERROR_INIT;
	struct node *node;

	cr_assert_eq(tree_path(tree, path, &node, &err), 0, "%s: %s", path, err.text);
	return node;
}

static void refused(const char *path, int errnum, const char *part)
{
	struct sl_error err = SL_ERROR_INIT;
	struct node *node;

	cr_expect_eq(tree_path(tree, path, &node, &err), -errnum, "%s", path);
	cr_expect(strstr(err.text, part), "%s: no '%s' in '%s'", path, part, err.text);
}

/* The names of a directory, in order, with blanks between them. */
static const char *names(const char *path)
{
	static char text[8192];
	struct sl_error err = SL_ERROR_INIT;
	struct node *const *children;
	size_t n, used = 0;

	text[0] = '\0';
	cr_assert_eq(tree_children(tree, find(path), &children, &n, &err), 0, "%s: %s", path, err.text);
	for (size_t i = 0; i < n; i++)
		used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s", i ? " " : "", children[i]->name);
	return text;
}

/* All of a file, by reads of odd lengths; its size is checked against the node's. */
static char *contents(const char *path, size_t *len)
{
	struct sl_error err = SL_ERROR_INIT;
	struct node *node = find(path);
	char *text = malloc(node->size + 1000);
	struct handle handle;
	ssize_t n;

	cr_assert_eq(handle_open(&handle, tree, node, &err), 0, "%s: %s", path, err.text);
	for (*len = 0; (n = handle_read(&handle, text + *len, *len, 997, &err)) > 0; *len += (size_t)n)
		cr_assert_lt(*len, node->size + 1);
	cr_assert_eq(n, 0, "%s: %s", path, err.text);
	handle_close(&handle);
	text[*len] = '\0';
	if (node->kind != NODE_LIVE)
		cr_expect_eq(*len, node->size, "%s: %zu bytes, its size is %zu", path, *len, (size_t)node->size);
	return text;
}

static void expect_part(const char *path, const char *part)
{
	size_t len;
	char *text = contents(path, &len);

	cr_expect(strstr(text, part), "%s: no '%s' in '%s'", path, part, text);
	free(text);
}

Test(tree, root)
{
	begin();
	cr_expect_str_eq(
		names("/"),
		"README.txt source vllm vllm@0.28 vllm@0.24 vllm@0.20 sglang hf airllm dcp serverlessllm kernel tensors .rankfs");
	cr_expect_str_eq(names(".rankfs"), "status stats settings version");
	cr_expect_eq(find(""), tree_root(tree));
	cr_expect_eq(find("vllm"), find("//vllm/./"));
	expect_part("README.txt", "vllm serve MOUNTPOINT/vllm/tpN");
	expect_part(".rankfs/status", "nothing is mounted\n");
	refused("nothing", ENOENT, "there is no 'nothing' in the tree");
	refused("README.txt/x", ENOTDIR, "'README.txt' is a file");
	end();
}

Test(tree, readme_names_the_mountpoint_and_what_does_not_work)
{
	begin_with(&(struct tree_options){ .mountpoint = "/mnt/x" });
	expect_part("README.txt", "vllm serve /mnt/x/vllm/tpN");
	expect_part("README.txt", "not vllm/tp16: ");
	end();
}

Test(tree, layouts)
{
	struct node *tp2;

	begin();
	cr_expect_str_eq(names("vllm"), "tp1 tp2 tp4 tp8");
	refused("vllm/tp16", EINVAL, "tp 16");
	refused("vllm/tp02", ENOENT, "no layout");
	refused("vllm/tp2-pp1", ENOENT, "no layout");
	refused("vllm/config.json", ENOENT, "no layout");
	tp2 = find("vllm/tp2-pp2");
	cr_expect_eq(tp2, find("vllm/tp2-pp2"));
	cr_expect_eq(tree_by_ino(tree, tp2->ino), tp2);
	cr_expect_str_eq(names("vllm"), "tp1 tp2 tp4 tp8", "a layout that was looked up is not listed");
	end();
}

Test(tree, ranks_of_an_engine_that_names_them_in_files)
{
	begin();
	cr_expect_str_eq(names("vllm/tp1"), "model-rank-0-part-0.safetensors model-rank-0-part-1.safetensors "
					    "model-rank-0-part-2.safetensors model-rank-0-part-3.safetensors "
					    "model-rank-0-part-4.safetensors config.json");
	cr_expect(strstr(names("vllm/tp2"), "model-rank-0-part-4.safetensors model-rank-1-part-0.safetensors"));
	cr_expect(strstr(names("vllm/tp1-pp2"), "model-pp-1-tp-0-part-0.safetensors"));
	end();
}

Test(tree, ranks_of_an_engine_that_wants_directories)
{
	begin();
	cr_expect_str_eq(names("hf/tp2"), "rank-0 rank-1");
	cr_expect(strstr(names("hf/tp2/rank-1"), "config.json"));
	refused("hf/tp2/rank-2", ENOENT, "there is no 'rank-2' in hf/tp2");
	cr_expect_str_eq(names("tensors/tp1-pp2"), "pp-0-rank-0 pp-1-rank-0");
	end();
}

Test(tree, engines_without_layouts)
{
	struct node *node;

	begin();
	cr_expect_str_eq(names("hf"), "tp1 tp2 tp4 tp8 layers", "inside the directory of another engine");
	cr_expect(strstr(names("hf/layers"), "model-00001-of-00005.safetensors"));
	cr_expect(strstr(names("airllm"), "splitted_model"));
	cr_expect(strstr(names("airllm/splitted_model"), "model.layers.0.safetensors.done"));
	node = find("airllm/splitted_model/model.norm.safetensors.done");
	cr_expect_eq(node->size, 0);
	refused("airllm/tp2", ENOENT, "there is no 'tp2' in airllm");
	refused("gpt-oss", EINVAL, "not LlamaForCausalLM");
	refused("deepseek/mp2", EINVAL, "not LlamaForCausalLM");
	refused("dcp/mp2", ENOENT, "'mp2' is no layout: tp8");
	end();
}

Test(tree, weights_are_the_view_s_bytes)
{
	struct sl_error err = SL_ERROR_INIT;
	struct node *node;
	struct stat st;
	char *text, *whole;
	size_t len;

	begin();
	node = find("vllm/tp2/model-rank-1-part-1.safetensors");
	cr_expect_eq(node->kind, NODE_FILE);
	text = contents("vllm/tp2/model-rank-1-part-1.safetensors", &len);
	whole = malloc(len);
	cr_expect_eq(sl_file_read(node->file, whole, 0, len, &err), (ssize_t)len);
	cr_expect_arr_eq(text, whole, len);
	free(text);
	free(whole);
	tree_stat(tree, node, &st);
	cr_expect_eq(st.st_mode, S_IFREG | 0444);
	cr_expect_eq((size_t)st.st_size, len);
	cr_expect_eq(st.st_uid, getuid());
	cr_expect_eq(st.st_mtim.tv_sec, model->shards.shards[0].mtime_ns / 1000000000);
	end();
}

Test(tree, files_that_pass_through)
{
	char *text;
	size_t len;

	begin();
	fixture_text("tokenizer.json", "tokens");
	fixture_text("original/params.json", "params");
	fixture_text("original/weights.pth", "weights");
	fixture_text("empty/weights.bin", "weights");
	fixture_text(".cache/x.json", "hidden");
	fixture_text("a/b/c/d/deep.json", "deep");
	fixture_text("a/b/c/d/e/deeper.json", "deeper");
	cr_assert_eq(symlink("nowhere", fixture_path("dangling.json")), 0);
	cr_assert_eq(symlink("tokenizer.json", fixture_path("link.json")), 0);
	cr_assert_eq(symlink("..", fixture_path("original/loop")), 0);
	cr_expect(strstr(names("vllm/tp1"), " a config.json link.json original tokenizer.json"), "%s",
		  names("vllm/tp1"));
	cr_expect_str_eq(names("vllm/tp1/original"), "params.json");
	cr_expect_str_eq(names("vllm/tp1/a/b/c/d"), "deep.json");
	cr_expect(strstr(names("hf/tp2/rank-1"), "original tokenizer.json"));
	text = contents("vllm/tp1/link.json", &len);
	cr_expect_str_eq(text, "tokens");
	cr_expect_eq(find("vllm/tp1/tokenizer.json")->kind, NODE_SOURCE);
	cr_expect_eq(find("hf/tp2/rank-1/config.json")->kind, NODE_FILE, "what a view computes hides the source's");
	free(text);
	end();
}

Test(tree, source_is_as_it_is)
{
	begin();
	fixture_text(".hidden", "hidden");
	fixture_text("sub/.deep/x", "x");
	cr_assert_eq(symlink("nowhere", fixture_path("dangling")), 0);
	cr_assert_eq(symlink(".", fixture_path("sub/here")), 0);
	cr_assert_eq(symlink("../sub", fixture_path("sub/loop")), 0);
	cr_assert_eq(mkfifo(fixture_path("fifo"), 0600), 0);
	cr_expect_str_eq(names("source"), ".hidden config.json model.safetensors sub");
	cr_expect_str_eq(names("source/sub"), ".deep");
	expect_part("source/sub/.deep/x", "x");
	end();
}

Test(tree, the_mountpoint_in_the_source_is_left_out)
{
	char *mountpoint;

	fixture_text("mnt/x", "x");
	mountpoint = strdup(fixture_path("mnt"));
	begin_with(&(struct tree_options){ .mountpoint = mountpoint });
	cr_expect_str_eq(names("source"), "config.json model.safetensors");
	free(mountpoint);
	end();
}

Test(tree, a_source_that_changed_is_refused)
{
	struct sl_error err = SL_ERROR_INIT;
	struct handle handle;
	struct node *node;
	char byte;

	begin();
	fixture_text("vocab.txt", "one");
	node = find("source/vocab.txt");
	cr_assert_eq(handle_open(&handle, tree, node, &err), 0);
	fixture_text("vocab.txt", "longer");
	cr_expect_eq(handle_read(&handle, &byte, 0, 1, &err), -ESTALE);
	cr_expect(strstr(err.text, "vocab.txt") && strstr(err.text, "3 bytes") && strstr(err.text, "6"), "%s",
		  err.text);
	handle_close(&handle);
	err = (struct sl_error)SL_ERROR_INIT;
	cr_expect_eq(handle_open(&handle, tree, node, &err), -ESTALE);
	cr_expect_eq(node->n_errors, 2);
	end();
}

Test(tree, tensors)
{
	const char *dir = "tensors/tp2/rank-1/model/layers/2/self_attn/qkv_proj";
	size_t len;
	char *text;

	begin();
	cr_expect_str_eq(names("tensors/tp2/rank-1"), "model lm_head");
	cr_expect_str_eq(names("tensors/tp2/rank-1/model/layers"), "0 1 2");
	cr_expect_str_eq(names(dir), "weight.npy weight.txt");
	text = contents("tensors/tp2/rank-1/model/layers/2/self_attn/qkv_proj/weight.npy", &len);
	cr_expect_eq(memcmp(text, "\x93NUMPY", 6), 0);
	free(text);
	expect_part("tensors/tp2/rank-1/model/layers/2/self_attn/qkv_proj/weight.txt",
		    "source  [0:32] = model.layers.2.self_attn.q_proj.weight[32:64]\n"
		    "        [32:40] = model.layers.2.self_attn.k_proj.weight[8:16]\n");
	expect_part("tensors/tp2/rank-1/lm_head/weight.txt", "zero rows");
	expect_part("tensors/tp2/rank-1/model/layers/0/self_attn/attn/_k_scale.txt", "all 1.0\nmin     1    ");
	end();
}

Test(tree, paths_of_tensors)
{
	static const struct {
		const char *name, *path;
	} cases[] = {
		{ "a.b.weight", "a/b/weight" }, { "weight", "weight" },		{ "", "%00" },
		{ "a..b", "a/%00/b" },		{ "..", "%00/%00/%00" },	{ "a/b.c", "a%2Fb/c" },
		{ "a\n.b%", "a%0A/b%25" },	{ "\xC3\xA9.x", "\xC3\xA9/x" }, { "a.", "a/%00" },
	};
	char name[400];
	struct sl_arena arena;
	const char *a, *b;

	sl_arena_init(&arena);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		cr_expect_str_eq(tree_tensor_path(&arena, cases[i].name), cases[i].path);
	memset(name, 'x', sizeof(name));
	name[sizeof(name) - 1] = '\0';
	a = tree_tensor_path(&arena, name);
	name[sizeof(name) - 2] = 'y';
	b = tree_tensor_path(&arena, name);
	cr_expect_lt(strlen(a), 250);
	cr_expect_eq(strlen(a), strlen(b));
	cr_expect_str_neq(a, b);
	sl_arena_release(&arena);
}

static void fill_with(struct filling *filling, struct entry *entries, size_t n)
{
	struct sl_error err = SL_ERROR_INIT;

	filling->tree = tree;
	filling->parent = tree->root;
	for (size_t i = 0; i < n; i++) {
		entries[i].in_source = true;
		entries[i].order = (uint32_t)i;
	}
	cr_assert_eq(fill_sorted(filling, entries, n, &err), 0, "%s", err.text);
}

Test(tree, entries_are_shown_in_order_and_the_first_of_a_name_wins)
{
	struct entry entries[] = { { .path = "z" }, { .path = "a/b" }, { .path = "a-b" }, { .path = "a/c" },
				   { .path = "z" }, { .path = "a" },   { .path = "q" },	  { .path = "q/r" } };
	struct filling filling = { .tree = NULL };

	begin();
	fill_with(&filling, entries, sizeof(entries) / sizeof(entries[0]));
	cr_assert_eq(filling.n, 4);
	cr_expect_str_eq(filling.nodes[0]->name, "z");
	cr_expect_str_eq(filling.nodes[1]->name, "a");
	cr_expect_eq(filling.nodes[1]->kind, NODE_DIR);
	cr_expect_eq(filling.nodes[1]->dir->n_entries, 2);
	cr_expect_str_eq(filling.nodes[2]->name, "a-b");
	cr_expect_str_eq(filling.nodes[3]->name, "q");
	cr_expect_eq(filling.nodes[3]->kind, NODE_SOURCE);
	free(filling.nodes);
	end();
}

/* Walk everything, calling `visit` on each node. */
static void walk(struct node *node, void (*visit)(struct node *node, void *context), void *context)
{
	struct sl_error err = SL_ERROR_INIT;
	struct node *const *children;
	size_t n;

	visit(node, context);
	if (node->kind != NODE_DIR)
		return;
	cr_assert_eq(tree_children(tree, node, &children, &n, &err), 0, "%s: %s", node->name, err.text);
	for (size_t i = 0; i < n; i++)
		walk(children[i], visit, context);
}

struct numbers {
	uint64_t inos[8192];
	size_t n;
};

static void note_number(struct node *node, void *context)
{
	struct numbers *numbers = context;

	cr_assert_lt(numbers->n, 8192);
	cr_expect_eq(tree_by_ino(tree, node->ino), node);
	cr_expect(node->ino == 1 ? node == tree_root(tree) : node->ino > 1);
	numbers->inos[numbers->n++] = node->ino;
}

Test(tree, numbers_are_distinct_and_the_same_each_time)
{
	static struct numbers first, second;
	struct sl_error err = SL_ERROR_INIT;
	struct node *node;

	begin();
	walk(tree_root(tree), note_number, &first);
	tree_close(tree);
	cr_assert_eq(tree_open(&tree, model, &(struct tree_options){ .engine = NULL }, &err), 0);
	/* In another order. */
	cr_assert_eq(tree_path(tree, "tensors/tp8/rank-7/lm_head/weight.txt", &node, &err), 0, "%s", err.text);
	walk(tree_root(tree), note_number, &second);
	cr_assert_eq(first.n, second.n);
	cr_expect_gt(first.n, 1000);
	cr_expect_arr_eq(first.inos, second.inos, first.n * sizeof(first.inos[0]));
	cr_expect_null(tree_by_ino(tree, 12345));
	end();
}

Test(tree, only_what_the_options_show)
{
	struct sl_error err = SL_ERROR_INIT;

	begin_with(&(struct tree_options){ .engine = "hf", .layout = "tp2" });
	cr_expect_str_eq(names("/"), "README.txt source hf .rankfs");
	cr_expect_str_eq(names("hf"), "tp2");
	refused("hf/tp4", ENOENT, "only tp2 is shown");
	refused("hf/layers", EINVAL, "hf/layers has no layouts, and only tp2 is shown");
	refused("vllm", ENOENT, "only hf is shown");
	tree_close(tree);
	cr_expect_eq(tree_open(&tree, model, &(struct tree_options){ .engine = "vlm" }, &err), -EINVAL);
	cr_expect(strstr(err.text, "'vlm' is no engine"));
	err = (struct sl_error)SL_ERROR_INIT;
	cr_expect_eq(tree_open(&tree, model, &(struct tree_options){ .layout = "tp16" }, &err), -EINVAL);
	cr_expect(strstr(err.text, "tp 16"), "%s", err.text);
	err = (struct sl_error)SL_ERROR_INIT;
	cr_expect_eq(tree_open(&tree, model, &(struct tree_options){ .layout = "x" }, &err), -EINVAL);
	cr_expect(strstr(err.text, "'x' is no layout"), "%s", err.text);
	end();
}

static void *look_up_all(void *context)
{
	static const char *const paths[] = { "vllm/tp4/config.json",
					     "hf/tp2/rank-1/config.json",
					     "vllm/tp1-pp2",
					     "tensors/tp2/rank-0/model/norm/weight.txt",
					     "source/config.json",
					     "vllm/tp2-pp3",
					     "tensors/tp4-pp2/pp-1-rank-3/lm_head/weight.npy" };
	struct node **nodes = context;

	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
		nodes[i] = find(paths[i]);
	return NULL;
}

Test(tree, threads_see_the_same_nodes)
{
	struct node *nodes[4][7];
	pthread_t threads[4];

	begin();
	for (int i = 0; i < 4; i++)
		cr_assert_eq(pthread_create(&threads[i], NULL, look_up_all, nodes[i]), 0);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	for (int i = 1; i < 4; i++)
		cr_expect_arr_eq(nodes[0], nodes[i], sizeof(nodes[0]));
	end();
}

/* Whatever allocation of the arenas fails, the lookup fails with -ENOMEM or works, and works afterwards. */
static void survive(const char *path)
{
	for (unsigned n = 1;; n++) {
		struct sl_error err = SL_ERROR_INIT;
		struct tree *t = NULL;
		struct node *node;
		int rc;

		cr_assert_eq(tree_open(&t, model, &(struct tree_options){ .engine = NULL }, &err), 0);
		sl_arena_fail_after(n);
		rc = tree_path(t, path, &node, &err);
		sl_arena_fail_after(0);
		if (rc) {
			cr_assert_eq(rc, -ENOMEM, "%s, allocation %u: %s", path, n, err.text);
			err = (struct sl_error)SL_ERROR_INIT;
			cr_assert_eq(tree_path(t, path, &node, &err), 0, "%s, after allocation %u: %s", path, n,
				     err.text);
		}
		tree_close(t);
		if (rc == 0)
			return;
	}
}

Test(tree, survives_a_lack_of_memory)
{
	begin();
	fixture_text("a/tokenizer.json", "tokens");
	survive("source/a/tokenizer.json");
	survive("vllm/tp1/a/tokenizer.json");
	survive("vllm/tp2-pp2/config.json");
	survive("tensors/tp2/rank-1/lm_head/weight.txt");
	end();
}
