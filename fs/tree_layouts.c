/*
 * tree_layouts.c - from the root down to what an engine opens: engines, layouts, ranks, and each one's files.
 *
 * An engine that tells ranks apart by the names of files has all of them in the layout's directory; one that wants a
 * model directory per rank has those below it, as has tensors/, which shows vLLM's tensors one by one.
 */
#include "fs/tree_impl.h"
#include "fs/usual.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What sl_layout_check() said of the usual layouts. */
struct verdicts {
	pthread_mutex_t lock;
	struct verdict {
		bool known;
		struct sl_error why; /* errnum 0: the model can have it */
	} of[SL_N_ENGINES][N_USUAL_LAYOUTS];
};

struct verdicts *verdicts_new(void)
{
	struct verdicts *verdicts = calloc(1, sizeof(*verdicts));

	if (verdicts)
		pthread_mutex_init(&verdicts->lock, NULL);
	return verdicts;
}

void verdicts_free(struct verdicts *verdicts)
{
	if (!verdicts)
		return;
	pthread_mutex_destroy(&verdicts->lock);
	free(verdicts);
}

/* Which of the usual layouts it is; N_USUAL_LAYOUTS for any other. */
static unsigned find_usual(const struct sl_layout *layout)
{
	unsigned i = 0;

	for (; i < N_USUAL_LAYOUTS; i++) {
		struct sl_layout usual = usual_layout(i);

		if (sl_layout_equal(&usual, layout))
			break;
	}
	return i;
}

int tree_check_layout(const struct tree *tree, const struct sl_engine *engine, const struct sl_layout *layout,
		      struct sl_error *err)
{
	unsigned usual = find_usual(layout);
	struct verdict *verdict;

	if (usual == N_USUAL_LAYOUTS)
		return sl_layout_check(tree->model, engine, layout, err);
	verdict = &tree->verdicts->of[engine - sl_engines][usual];
	pthread_mutex_lock(&tree->verdicts->lock);
	if (!verdict->known) {
		if (sl_layout_check(tree->model, engine, layout, &verdict->why) == 0)
			verdict->why.errnum = 0;
		verdict->known = true;
	}
	pthread_mutex_unlock(&tree->verdicts->lock);
	return verdict->why.errnum ? sl_fail(err, verdict->why.errnum, "%s", verdict->why.text) : 0;
}

unsigned tree_n_usual(const struct tree *tree, const struct sl_engine *engine)
{
	struct sl_error unused = SL_ERROR_INIT;
	struct sl_layout first = usual_layout(0);

	return !engine->ranks || tree_check_layout(tree, engine, &first, &unused) ? 1 : N_USUAL_LAYOUTS;
}

size_t tree_layouts(const struct tree *tree, const struct sl_engine *engine, struct sl_layout *layouts, size_t max)
{
	size_t n = 0;

	for (unsigned i = 0, end = tree_n_usual(tree, engine); i < end && n < max; i++) {
		struct sl_error unused = SL_ERROR_INIT;

		layouts[n] = usual_layout(i);
		sl_process_settle(tree->model, engine, &layouts[n]);
		n += tree_check_layout(tree, engine, &layouts[n], &unused) == 0;
	}
	return n;
}

int only_layout(const struct tree *tree, const struct sl_engine *engine, struct sl_layout *layout, struct sl_error *err)
{
	const char *name = tree->options.layout;

	*layout = SL_LAYOUT_WHOLE;
	if (!name) {
		sl_process_settle(tree->model, engine, layout);
		return 0;
	}
	if (!engine->ranks)
		return sl_fail(err, EINVAL, "%s has no layouts, and only %s is shown", engine->name, SL_ESC(name));
	if (sl_layout_parse(layout, engine, name) && sl_layout_parse(layout, &sl_engines[SL_VLLM], name))
		return sl_fail(err, EINVAL, "'%s' is no layout: %s8, %s are some", SL_ESC(name), engine->ranks,
			       engine->layouts);
	return 0;
}

/* Is the engine, or the one inside whose directory it lies, the only one that the options let through? */
static bool is_let_through(const struct tree *tree, const struct sl_engine *engine)
{
	return !tree->options.engine || is_or_is_inside(engine, tree->options.engine);
}

static int check_engine(const struct tree *tree, const struct sl_engine *engine, struct sl_error *err)
{
	struct sl_layout layout;
	int rc;

	if (!is_let_through(tree, engine))
		return sl_fail(err, ENOENT, "only %s is shown", SL_ESC(tree->options.engine));
	rc = only_layout(tree, engine, &layout, err);
	if (rc == 0)
		rc = tree_check_layout(tree, engine, &layout, err);
	return rc;
}

bool shows_engine(const struct tree *tree, const struct sl_engine *engine)
{
	struct sl_error unused = SL_ERROR_INIT;

	return check_engine(tree, engine, &unused) == 0;
}

int tree_check_options(const struct tree *tree, struct sl_error *err)
{
	const struct sl_engine *engine = tree->options.engine ? sl_engine_find(tree->options.engine) : NULL;

	if (tree->options.engine && (!engine || strchr(engine->name, '/')))
		return sl_fail(err, EINVAL, "'%s' is no engine: `rankfs --list` shows those there are",
			       SL_ESC(tree->options.engine));
	for (int i = 0; i < SL_N_ENGINES && !engine; i++) {
		if (shows_engine(tree, &sl_engines[i]))
			return 0;
	}
	return check_engine(tree, engine ? engine : &sl_engines[0], err);
}

static int add_engine(struct filling *filling, const char *name, const struct sl_engine *engine, bool by_tensor,
		      struct sl_error *err)
{
	struct dir *dir;

	if (!shows_engine(filling->tree, engine))
		return 0;
	dir = filling_add_dir(filling, name, engine->ranks ? DIR_ENGINE : DIR_FILES, err);
	if (!dir)
		return -ENOMEM;
	dir->engine = engine;
	dir->by_tensor = by_tensor;
	dir->layout = SL_LAYOUT_WHOLE;
	return 0;
}

/* The engine that has the directory `name` inside that of `above`, or at the top when that is NULL. */
static const struct sl_engine *engine_inside(const struct sl_engine *above, const char *name)
{
	char path[SL_LAYOUT_PATH_MAX];

	snprintf(path, sizeof(path), "%s%s%s", above ? above->name : "", above ? "/" : "", name);
	return strchr(name, '/') ? NULL : sl_engine_find(path);
}

/* Those directories. */
static int add_engines_inside(struct filling *filling, const struct sl_engine *above, struct sl_error *err)
{
	size_t skip = above ? strlen(above->name) + 1 : 0;
	int rc = 0;

	for (int i = 0; rc == 0 && i < SL_N_ENGINES; i++) {
		const struct sl_engine *engine = &sl_engines[i];

		if (strlen(engine->name) > skip && engine_inside(above, engine->name + skip) == engine)
			rc = add_engine(filling, engine->name + skip, engine, false, err);
	}
	return rc;
}

int engine_refused(const struct tree *tree, const struct dir *dir, const char *name, const char *inside,
		   struct sl_error *err)
{
	const struct sl_engine *engine = engine_inside(dir->engine, name);
	struct sl_error unused = SL_ERROR_INIT;
	char layout_name[SL_LAYOUT_NAME_MAX];
	struct sl_layout layout;
	int rc = 0;

	if (!engine)
		return sl_engine_check_release(name, err);
	snprintf(layout_name, sizeof(layout_name), "%.*s", (int)strcspn(inside, "/"), inside);
	if (check_engine(tree, engine, &unused) && is_let_through(tree, engine) &&
	    !sl_layout_parse(&layout, engine, layout_name))
		rc = tree_check_layout(tree, engine, &layout, err);
	return rc ? rc : check_engine(tree, engine, err);
}

static int add_source(struct filling *filling, struct sl_error *err)
{
	struct dir *dir = filling_add_dir(filling, "source", DIR_SOURCE, err);

	if (!dir)
		return -ENOMEM;
	dir->path = ".";
	return 0;
}

static int add_readme(struct filling *filling, struct sl_error *err)
{
	struct node *node = filling_add(filling, "README.txt", NODE_TEXT, err);
	char *text;
	size_t len;
	int rc;

	if (!node)
		return -ENOMEM;
	rc = text_make(&text, &len, filling->tree, node, false, err);
	if (rc)
		return rc;
	node->size = len;
	free(text);
	return 0;
}

int fill_root(struct filling *filling, struct sl_error *err)
{
	int rc = add_readme(filling, err);

	if (rc == 0)
		rc = add_source(filling, err);
	if (rc == 0)
		rc = add_engines_inside(filling, NULL, err);
	if (rc == 0 && !filling->tree->options.engine)
		rc = add_engine(filling, "tensors", &sl_engines[SL_VLLM], true, err);
	if (rc == 0 && !filling_add_dir(filling, ".rankfs", DIR_LIVE, err))
		rc = -ENOMEM;
	return rc;
}

int fill_live(struct filling *filling, struct sl_error *err)
{
	static const char *const names[] = { "status", "stats", "settings", "version" };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (!filling_add(filling, names[i], NODE_LIVE, err))
			return -ENOMEM;
	}
	return 0;
}

static bool has_rank_dirs(const struct dir *dir)
{
	return dir->by_tensor || dir->engine->rank_dirs;
}

int fill_layout(struct filling *filling, const char *name, const struct sl_layout *layout, struct sl_error *err)
{
	enum dir_kind kind = has_rank_dirs(filling->parent->dir) ? DIR_RANKS : DIR_FILES;
	struct dir *dir = filling_add_dir(filling, name, kind, err);

	if (!dir)
		return -ENOMEM;
	dir->layout = *layout;
	return 0;
}

int fill_engine(struct filling *filling, struct sl_error *err)
{
	struct tree *tree = filling->tree;
	const struct dir *dir = filling->parent->dir;
	struct sl_layout layouts[N_USUAL_LAYOUTS];
	char name[SL_LAYOUT_NAME_MAX];
	size_t n = 1;
	int rc = 0;

	if (tree->options.layout)
		rc = only_layout(tree, dir->engine, &layouts[0], err);
	else
		n = tree_layouts(tree, dir->engine, layouts, N_USUAL_LAYOUTS);
	for (size_t i = 0; i < n && rc == 0; i++)
		rc = fill_layout(filling, sl_layout_format(&layouts[i], dir->engine, name), &layouts[i], err);
	if (rc == 0 && !dir->by_tensor)
		rc = add_engines_inside(filling, dir->engine, err);
	return rc;
}

int layout_find(const struct tree *tree, const struct dir *engine, const char *name, struct sl_layout *layout,
		struct sl_error *err)
{
	struct sl_layout only;
	int rc;

	if (sl_layout_parse(layout, engine->engine, name))
		return sl_fail(err, ENOENT, "'%s' is no layout: %s8, %s are some", SL_ESC(name), engine->engine->ranks,
			       engine->engine->layouts);
	rc = only_layout(tree, engine->engine, &only, err);
	if (rc == 0 && tree->options.layout && !sl_layout_equal(layout, &only))
		rc = sl_fail(err, ENOENT, "only %s is shown, not %s", tree->options.layout, name);
	return rc ? rc : tree_check_layout(tree, engine->engine, layout, err);
}

const char *rank_name(char *buf, size_t size, const struct sl_layout *layout, unsigned stage, unsigned rank)
{
	if (layout->pp > 1)
		snprintf(buf, size, "pp-%u-rank-%u", stage, rank);
	else
		snprintf(buf, size, "rank-%u", rank);
	return buf;
}

int fill_ranks(struct filling *filling, struct sl_error *err)
{
	const struct dir *above = filling->parent->dir;
	enum dir_kind kind = above->by_tensor ? DIR_TENSORS : DIR_FILES;
	char name[64];

	for (unsigned i = 0; i < above->layout.pp * above->layout.tp; i++) {
		unsigned stage = i / above->layout.tp, rank = i % above->layout.tp;
		struct dir *dir =
			filling_add_dir(filling, rank_name(name, sizeof(name), &above->layout, stage, rank), kind, err);

		if (!dir)
			return -ENOMEM;
		dir->stage = stage;
		dir->rank = rank;
	}
	return 0;
}

static bool is_view_of(const struct sl_view *view, const struct dir *dir, unsigned stage, unsigned rank)
{
	return view->engine == dir->engine && view->stage == stage && view->rank == rank &&
	       sl_layout_equal(&view->layout, &dir->layout);
}

int tree_view(struct tree *tree, const struct dir *dir, unsigned stage, unsigned rank, const struct sl_view **out,
	      struct sl_error *err)
{
	struct planned *planned = tree->views;
	int rc;

	while (planned && !is_view_of(planned->view, dir, stage, rank))
		planned = planned->next;
	if (!planned) {
		planned = sl_arena_alloc(&tree->arena, sizeof(*planned));
		if (!planned)
			return sl_fail(err, ENOMEM, "no memory for a view");
		rc = sl_view_open(&planned->view, tree->model, dir->engine, &dir->layout, stage, rank,
				  &tree->options.view, err);
		if (rc)
			return rc;
		planned->next = tree->views;
		tree->views = planned;
	}
	*out = planned->view;
	return 0;
}

/* The entries of one directory, in the order of its listing. */
struct entry_list {
	struct entry *entries;
	size_t n;
};

static void add_files(struct entry_list *list, const struct sl_view *view, uint32_t from, uint32_t to)
{
	for (uint32_t i = from; i < to; i++, list->n++) {
		list->entries[list->n] = (struct entry){
			.path = view->files[i].name,
			.order = (uint32_t)list->n,
			.view = view,
			.file = &view->files[i],
		};
	}
}

static void add_passed(struct entry_list *list, const struct tree *tree, const struct sl_engine *engine)
{
	for (size_t i = 0; i < tree->n_passed; i++) {
		if (engine->passes && !engine->passes(tree->passed[i].path))
			continue;
		list->entries[list->n] = tree->passed[i];
		list->entries[list->n].order = (uint32_t)list->n;
		list->n++;
	}
}

/* The ranks whose files are in one directory: those of the layout, or one. */
struct span {
	unsigned first, end; /* stage * tp + rank */
};

static struct span span_of(const struct dir *dir)
{
	unsigned one = dir->stage * dir->layout.tp + dir->rank;

	if (has_rank_dirs(dir))
		return (struct span){ one, one + 1 };
	return (struct span){ 0, dir->layout.pp * dir->layout.tp };
}

static int view_of_span(struct tree *tree, const struct dir *dir, unsigned i, const struct sl_view **view,
			struct sl_error *err)
{
	return tree_view(tree, dir, i / dir->layout.tp, i % dir->layout.tp, view, err);
}

/* Weight files rank by rank, then what the first rank's view has beside them, which is the same for all, then files
 * of the source. */
static int collect(struct tree *tree, const struct dir *dir, struct entry_list *list, struct sl_error *err)
{
	const struct sl_view *view;
	struct span span = span_of(dir);
	size_t cap = tree->n_passed;
	int rc;

	for (unsigned i = span.first; i < span.end; i++) {
		rc = view_of_span(tree, dir, i, &view, err);
		if (rc)
			return rc;
		cap += view->n_files;
	}
	list->entries = sl_arena_array(&tree->arena, cap, sizeof(struct entry));
	if (!list->entries)
		return sl_fail(err, ENOMEM, "no memory for %zu files", cap);
	for (unsigned i = span.first; i < span.end; i++) {
		rc = view_of_span(tree, dir, i, &view, err);
		if (rc)
			return rc;
		add_files(list, view, 0, view->n_weights);
	}
	rc = view_of_span(tree, dir, span.first, &view, err);
	if (rc)
		return rc;
	add_files(list, view, view->n_weights, view->n_files);
	add_passed(list, tree, dir->engine);
	return 0;
}

int fill_files(struct filling *filling, struct sl_error *err)
{
	struct entry_list list = { 0 };
	int rc = tree_scan_passed(filling->tree, err);

	if (rc == 0)
		rc = collect(filling->tree, filling->parent->dir, &list, err);
	if (rc == 0)
		rc = fill_sorted(filling, list.entries, list.n, err);
	return rc;
}
