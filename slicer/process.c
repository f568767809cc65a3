/*
 * process.c - walking the modules of a loaded plan, finding each one's choice, and taking its steps.
 */
#include "slicer/process.h"

#include "slicer/post.h"
#include "slicer/text.h"
#include "slicer/transforms/transpose.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SET_MAX = 32 };

/* Tensors of a module between two steps. */
struct set {
	struct sl_loaded list[SET_MAX];
	bool used[SET_MAX];
	unsigned n;
};

struct process {
	struct sl_plan *plan, loaded;
	const struct sl_piece *pieces; /* of loaded, in the view's arena */
};

static int out_of_memory(struct sl_plan *plan)
{
	return sl_fail(plan->err, ENOMEM, "out of memory");
}

/* ---- names ---- */

/* Length of the module's name in a tensor's, with its last dot. */
static size_t prefix_len(const char *name)
{
	const char *dot = strrchr(name, '.');

	return dot ? (size_t)(dot - name) + 1 : 0;
}

/* Is `name` one of "a|b"? */
static bool is_listed(const char *list, const char *name)
{
	size_t len = strlen(name);

	for (const char *at = list; at && *at; at += strcspn(at, "|"), at += *at == '|') {
		if (strcspn(at, "|") == len && memcmp(at, name, len) == 0)
			return true;
	}
	return false;
}

/* The other name of `name` in "from=to|…", or from right to left; itself when it is not there. NULL without memory. */
static const char *renamed(struct sl_arena *arena, const char *pairs, const char *name, bool back)
{
	size_t len = strlen(name);

	for (const char *at = pairs; at && *at; at += strcspn(at, "|"), at += *at == '|') {
		size_t left = strcspn(at, "="), all = strcspn(at, "|"), right = all - left - 1;
		const char *find = back ? at + left + 1 : at, *other = back ? at : at + left + 1;
		if ((back ? right : left) == len && memcmp(find, name, len) == 0)
			return sl_arena_strndup(arena, other, back ? left : right);
	}
	return name;
}

static bool ends_with(const char *name, const char *end)
{
	size_t n = strlen(name), m = strlen(end);

	return n >= m && strcmp(name + n - m, end) == 0;
}

/* ---- choices ---- */

enum sl_module_kind sl_module_kind(const struct sl_weight *row)
{
	if (sl_is_expert(row))
		return SL_EXPERTS;
	if (row->in == SL_NO_AXIS || (row->flags & (SL_PLAIN_ONLY | SL_IS_EMBED | SL_IS_HEAD | SL_UNFUSED | SL_BARE)))
		return SL_OTHER;
	return ends_with(row->name, "kv_b_proj") ? SL_LATENT : SL_LINEAR;
}

/* For which GPU: the layout's own, else the option's. */
static enum sl_gpu gpu_of(const struct sl_layout *layout, enum sl_gpu otherwise)
{
	return layout->gpu ? (enum sl_gpu)(layout->gpu - 1) : otherwise;
}

const struct sl_choice *sl_choose(const struct sl_choice *choices, const struct sl_asked *asked)
{
	enum sl_module_kind kind = sl_module_kind(asked->module->row);

	for (const struct sl_choice *c = choices; c->storage; c++) {
		unsigned online = c->online ? c->online : 1u << SL_ONLINE_NONE;
		if (strcmp(c->storage, asked->module->storage->name) == 0 && c->kind == kind &&
		    (c->gpus & 1u << asked->gpu) && (c->kernels & 1u << asked->kernels) &&
		    (online & 1u << asked->online) && (!c->when || c->when(asked)))
			return c;
	}
	return NULL;
}

static void ask(const struct sl_model *model, const struct sl_engine *engine, const struct sl_layout *layout,
		enum sl_gpu gpu, const struct sl_module *module, uint64_t n, uint64_t k, struct sl_asked *asked)
{
	bool normalises = sl_config_bool(&model->config, SL_TEXT, "norm_topk_prob", false),
	     said = normalises == sl_config_bool(&model->config, SL_TEXT, "norm_topk_prob", true);

	*asked = (struct sl_asked){
		.module = module,
		.gpu = gpu,
		.kernels = layout->kernels,
		.online = layout->online,
		.spread = layout->experts != SL_EXPERTS_SLICED && layout->tp > 1,
		.normalises = said ? normalises : -1,
		.dtype = sl_float_of(model, engine, layout),
		.config = &model->config,
		.n = n,
		.k = k,
	};
}

bool sl_has_input_scale(const struct sl_model *model, const struct sl_bound *bound)
{
	const struct sl_storage *storage = bound->storage;

	for (unsigned i = 0; storage && i < storage->n_components; i++) {
		const char *held = storage->components[i].held;
		if ((strcmp(held, "input_scale") == 0 || strcmp(held, "input_global_scale") == 0) &&
		    sl_bound_tensor(model, bound, i))
			return true;
	}
	return false;
}

static int refuse(const struct sl_choice *choice, const struct sl_engine *engine, const struct sl_module *module,
		  enum sl_gpu gpu, const char *name, struct sl_error *err)
{
	if (!choice)
		return sl_fail(err, EINVAL, "%s: %s for %s: what %s holds of it with these kernels is not known",
			       SL_ESC(name), module->storage->name, sl_gpu_names[gpu], engine->version);
	return sl_fail(err, EINVAL, "%s: %s for %s: %s", SL_ESC(name), module->storage->name, sl_gpu_names[gpu],
		       choice->refused);
}

/* ---- what recipes are told ---- */

static uint64_t rows_of(const struct sl_module *module)
{
	uint64_t rows = 0;

	for (unsigned i = 0; i < module->n_widths; i++)
		rows += module->widths[i];
	return rows;
}

static uint64_t number(const struct sl_plan *plan, const char *key)
{
	uint64_t value = 0;

	return sl_config_u64(&plan->model->config, SL_TEXT, key, &value, NULL) ? 0 : value;
}

static void set_latent(const struct sl_plan *plan, const struct sl_module *module, struct sl_post_facts *facts)
{
	facts->nope = number(plan, "qk_nope_head_dim");
	facts->v = number(plan, "v_head_dim");
	facts->rank = number(plan, "kv_lora_rank");
	if (facts->nope + facts->v)
		facts->heads = rows_of(module) / (facts->nope + facts->v);
}

static void set_facts(const struct sl_plan *plan, const struct sl_module *modules, unsigned n,
		      const struct sl_step *step, struct sl_post_facts *facts)
{
	const struct sl_quant *quant = &plan->model->quant;
	const struct sl_storage *storage = modules[0].storage;
	unsigned finer = modules[0].finer ? modules[0].finer : 1;

	*facts = (struct sl_post_facts){
		.bits = quant->bits ? quant->bits : 4,
		.group = quant->group ? quant->group : storage->group,
		.block = { quant->block[0] / finer, quant->block[1] / finer },
		.dtype = sl_plan_float(plan),
		.n_widths = modules[0].n_widths,
		.rows = rows_of(&modules[0]),
		.gated = true,
		.symmetric = !quant->asymmetric,
		.fixed = modules[0].fixed,
		.align = step->align,
		.backend = step->backend,
	};
	if (plan->view->layout.online == SL_ONLINE_BLOCK)
		facts->block[0] = facts->block[1] = 128;
	for (unsigned i = 0; i < facts->n_widths; i++)
		facts->widths[i] = modules[0].widths[i];
	if (sl_module_kind(modules[0].row) == SL_EXPERTS) {
		facts->inter = rows_of(&modules[0]) / 2;
		facts->hidden = rows_of(&modules[n - 1]);
	}
	if (sl_module_kind(modules[0].row) == SL_LATENT)
		set_latent(plan, &modules[0], facts);
}

/* ---- one step ---- */

static const struct sl_loaded *named(const struct set *set, const char *name)
{
	for (unsigned i = 0; i < set->n; i++) {
		if (strcmp(set->list[i].name, name) == 0)
			return &set->list[i];
	}
	return NULL;
}

/* Tensors of a plan as inputs; their pieces move to the view's arena. */
static int take_tensors(struct sl_plan *from, struct sl_arena *arena, const struct sl_step *step,
			const struct sl_recipe *recipe, const struct set *before, struct set *set)
{
	struct sl_piece *pieces = sl_arena_array(arena, from->n_pieces + 1u, sizeof(*pieces));

	if (!pieces)
		return out_of_memory(from);
	if (from->n_pieces)
		memcpy(pieces, from->pieces, from->n_pieces * sizeof(*pieces));
	for (uint32_t i = 0; i < from->n_tensors; i++) {
		const struct sl_output *t = &from->tensors[i];
		uint32_t first = from->first_piece[i],
			 end = i + 1 < from->n_tensors ? from->first_piece[i + 1] : from->n_pieces;
		const char *name = renamed(arena, step->out, t->name, false);
		if (name == t->name)
			name = renamed(arena, step->in, t->name, true);
		if (!name || set->n == SET_MAX)
			return name ? sl_fail(from->err, EINVAL, "a module of more than %d tensors", SET_MAX)
				    : out_of_memory(from);
		const struct sl_loaded *same = named(before, name);
		bool keeps = same && step->keeps_shapes;
		struct sl_done *done = sl_arena_array(arena, 1, sizeof(*done));
		if (!done)
			return out_of_memory(from);
		*done = (struct sl_done){ recipe, same ? same->done : NULL };
		set->list[set->n++] = (struct sl_loaded){
			.name = name,
			.shape = keeps ? same->shape : t->shape,
			.dtype = (enum sl_dtype)t->dtype,
			.n_dims = keeps ? same->n_dims : t->n_dims,
			.len = t->len,
			.pieces = pieces + first,
			.n_pieces = end - first,
			.done = done,
			.turned = t->turned,
			.elsewhere = step->elsewhere,
		};
	}
	return 0;
}

/* What a recipe has asked for is gone, what it has made is there; the rest stays. */
static int take_step(struct process *p, const struct sl_module *modules, unsigned n, const struct sl_step *step,
		     const char *prefix, struct set *set)
{
	const struct sl_recipe *recipe = sl_recipe_find(step->recipe);
	struct sl_arena *arena = &p->plan->view->arena;
	struct sl_plan made = *p->plan;
	struct set now = { .n = set->n }, then = { .n = 0 };
	struct sl_post post = { .plan = &made,
				.prefix = "",
				.module = prefix,
				.strict = true,
				.loaded = now.list,
				.n_loaded = now.n,
				.used = now.used };
	int ret = 0;

	made.tensors = NULL, made.pieces = NULL, made.first_piece = NULL, made.columns = NULL;
	made.n_tensors = made.room_tensors = made.n_pieces = made.room_pieces = made.n_columns = made.room_columns = 0;
	made.expected = 0;
	for (unsigned i = 0; i < set->n && !ret; i++) {
		now.list[i] = set->list[i];
		now.list[i].name = renamed(arena, step->in, set->list[i].name, false);
		ret = now.list[i].name ? 0 : out_of_memory(p->plan);
	}
	set_facts(p->plan, modules, n, step, &post.facts);
	if (!ret)
		ret = recipe->make(&post);
	for (unsigned i = 0; i < set->n; i++) {
		if (!now.used[i] || step->elsewhere)
			then.list[then.n++] = set->list[i];
	}
	if (!ret)
		ret = take_tensors(&made, arena, step, recipe, set, &then);
	sl_plan_release(&made);
	*set = then;
	return ret ? sl_error_prefix(p->plan->err, "%s", SL_ESC(prefix)) : 0;
}

/* ---- tensors of the plan ---- */

/* A matrix that the engine holds turned, as bytes: the last two axes change places. */
static int turn(struct process *p, struct sl_loaded *t)
{
	const struct sl_post post = { .plan = p->plan, .prefix = "" };
	uint64_t rows = t->shape[t->n_dims - 2], cols = t->shape[t->n_dims - 1], size = sl_dtypes[t->dtype].bits / 8;
	uint64_t *shape = sl_arena_array(&p->plan->view->arena, t->n_dims, sizeof(*shape));
	struct sl_transform turned =
		sl_post_transform(SL_T_TRANSPOSE, t->len / (rows * cols * size), cols, rows * size);
	struct sl_stream made;

	if (!shape)
		return out_of_memory(p->plan);
	turned.args.p[SL_TRANSPOSE_SIZE] = size;
	sl_post_input(&turned, t, 0, rows, cols * size);
	int ret = sl_post_make(&post, &turned, &made);
	memcpy(shape, t->shape, t->n_dims * sizeof(*shape));
	shape[t->n_dims - 2] = cols;
	shape[t->n_dims - 1] = rows;
	t->shape = shape;
	t->pieces = made.pieces;
	t->n_pieces = made.n;
	t->turned = false;
	return ret;
}

static int add_tensor(struct process *p, const char *prefix, struct sl_loaded *t, const char *kernel)
{
	struct sl_plan *plan = p->plan;
	bool turns = t->turned && (plan->engine->turns || plan->view->layout.turned);
	const char *name = sl_arena_printf(&plan->view->arena, "%s%s", prefix, t->name);
	int ret = name ? 0 : out_of_memory(plan);

	if (!ret && turns)
		ret = turn(p, t);
	if (!ret)
		ret = sl_plan_tensor(plan, name, t->dtype);
	for (uint32_t i = 0; i < t->n_pieces && !ret; i++)
		ret = sl_plan_piece(plan, &t->pieces[i]);
	if (!ret)
		ret = sl_plan_shape(plan, t->shape, t->n_dims);
	if (!ret) {
		plan->tensors[plan->n_tensors - 1].done = t->done;
		plan->tensors[plan->n_tensors - 1].kernel = kernel;
		plan->tensors[plan->n_tensors - 1].turned = t->turned;
	}
	return ret;
}

/* Where the tensors of a module beside `prefix` are: "a.b.c." and "d." are "a.b.d.". */
static const char *beside(struct sl_arena *arena, const char *prefix, const char *elsewhere)
{
	char *own = sl_arena_strndup(arena, prefix, strlen(prefix) - 1);

	return own ? sl_arena_printf(arena, "%.*s%s", (int)prefix_len(own), own, elsewhere) : NULL;
}

static int add_set(struct process *p, const char *prefix, const struct sl_choice *choice, struct set *set)
{
	int ret = 0;

	for (unsigned i = 0; i < set->n && !ret; i++) {
		struct sl_loaded *t = &set->list[i];
		const char *own = t->elsewhere ? beside(&p->plan->view->arena, prefix, t->elsewhere) : prefix;
		if (!own)
			return out_of_memory(p->plan);
		if (!is_listed(choice->drops, t->name))
			ret = add_tensor(p, own, t, choice->says);
	}
	return ret;
}

/* ---- modules ---- */

static void load(const struct process *p, uint32_t i, size_t skip, struct sl_loaded *loaded)
{
	const struct sl_output *t = &p->loaded.tensors[i];
	uint32_t first = p->loaded.first_piece[i],
		 end = i + 1 < p->loaded.n_tensors ? p->loaded.first_piece[i + 1] : p->loaded.n_pieces;

	*loaded = (struct sl_loaded){ .name = t->name + skip,
				      .shape = t->shape,
				      .dtype = (enum sl_dtype)t->dtype,
				      .n_dims = t->n_dims,
				      .len = t->len,
				      .pieces = p->pieces + first,
				      .n_pieces = end - first };
}

/* Modules from `m` on that are one for the recipes: w13 and w2 of experts. */
static unsigned joined(const struct process *p, uint32_t m)
{
	const struct sl_module *first = &p->loaded.modules[m];
	const char *name = p->loaded.tensors[first->first].name;
	unsigned n = 1;

	while (sl_module_kind(first->row) == SL_EXPERTS && m + n < p->loaded.n_modules) {
		const struct sl_module *next = &p->loaded.modules[m + n];
		const char *other = p->loaded.tensors[next->first].name;
		if (sl_module_kind(next->row) != SL_EXPERTS || prefix_len(other) != prefix_len(name) ||
		    memcmp(other, name, prefix_len(name)) != 0)
			break;
		n++;
	}
	return n;
}

static int keep(struct process *p, uint32_t i)
{
	struct sl_loaded t;

	p->plan->section = p->loaded.tensors[i].section;
	load(p, i, 0, &t);
	return add_tensor(p, "", &t, NULL);
}

static int process_modules(struct process *p, uint32_t m, unsigned n)
{
	const struct sl_module *modules = &p->loaded.modules[m], *last = &modules[n - 1];
	const char *first = p->loaded.tensors[modules->first].name;
	size_t skip = prefix_len(first);
	char *prefix = sl_arena_strndup(&p->plan->view->arena, first, skip);
	enum sl_gpu gpu = p->plan->gpu;
	struct set set = { .n = 0 };
	struct sl_asked asked;
	int ret = 0;

	if (!prefix)
		return out_of_memory(p->plan);
	ask(p->plan->model, p->plan->engine, &p->plan->view->layout, gpu, modules, rows_of(modules), modules->columns,
	    &asked);
	const struct sl_choice *choice = sl_choose(p->plan->engine->choices, &asked);
	if (!choice || choice->refused)
		return refuse(choice, p->plan->engine, modules, gpu, prefix, p->plan->err);
	if (last->first + last->n - modules->first > SET_MAX)
		return sl_fail(p->plan->err, EINVAL, "%s has more than %d tensors", SL_ESC(prefix), SET_MAX);
	for (uint32_t i = modules->first; i < last->first + last->n; i++)
		load(p, i, skip, &set.list[set.n++]);
	for (unsigned s = 0; s < SL_STEPS_MAX && choice->steps[s].recipe && !ret; s++) {
		if (!choice->steps[s].has || named(&set, choice->steps[s].has))
			ret = take_step(p, modules, n, &choice->steps[s], prefix, &set);
	}
	p->plan->section = p->loaded.tensors[modules->first].section;
	return ret ? ret : add_set(p, prefix, choice, &set);
}

/* Tensors in the order in which they were loaded: those of modules processed, the others kept. */
static int process_all(struct process *p)
{
	int ret = 0;

	for (uint32_t i = 0, m = 0, n; i < p->loaded.n_tensors && !ret;) {
		if (m < p->loaded.n_modules && p->loaded.modules[m].first == i &&
		    sl_module_kind(p->loaded.modules[m].row) != SL_OTHER) {
			n = joined(p, m);
			ret = process_modules(p, m, n);
			i = p->loaded.modules[m + n - 1].first + p->loaded.modules[m + n - 1].n;
			m += n;
			continue;
		}
		m += m < p->loaded.n_modules && p->loaded.modules[m].first == i;
		ret = keep(p, i++);
	}
	return ret;
}

int sl_process_plan(struct sl_plan *plan)
{
	struct process p = { .plan = plan };
	int ret = sl_plan_stacks(plan);

	if (ret)
		return ret;
	p.loaded = *plan;
	plan->tensors = NULL, plan->pieces = NULL, plan->first_piece = NULL, plan->columns = NULL;
	plan->n_tensors = plan->room_tensors = plan->n_pieces = plan->room_pieces = plan->n_columns =
		plan->room_columns = 0;
	p.pieces = sl_arena_array(&plan->view->arena, p.loaded.n_pieces + 1u, sizeof(*p.pieces));
	if (p.pieces && p.loaded.n_pieces)
		memcpy((void *)(uintptr_t)p.pieces, p.loaded.pieces, p.loaded.n_pieces * sizeof(*p.pieces));
	ret = p.pieces ? process_all(&p) : out_of_memory(plan);
	sl_plan_release(&p.loaded);
	return ret;
}

/* ---- before it is planned ---- */

/* Rows of all matrices that are one module with that of row r, and its columns, on the first rank; how much finer its blocks
 * become. */
static int module_size(const struct sl_model *model, const struct sl_engine *engine, const struct sl_layout *layout,
		       unsigned s, uint64_t layer, unsigned r, struct sl_matrix *size, unsigned *finer,
		       struct sl_error *err)
{
	const struct sl_stack *stack = &model->arch->stacks[s];
	const struct sl_weight *first = sl_row_in(engine, &stack->weights[r]);
	int ret = 0;

	for (*size = (struct sl_matrix){ 0, 0 }; r < stack->n_weights && !ret; r++) {
		const struct sl_weight *row = sl_row_in(engine, &stack->weights[r]);
		const struct sl_bound *bound = sl_bound_at(model, s, layer, r, 0);
		struct sl_share share;
		if (!bound->storage || (row != first && !sl_are_fused(first, row)))
			break;
		ret = sl_share_of(model, engine, layout, stack->part, row, bound->storage,
				  sl_logical_matrix(model, row, bound), 0, SL_SM90, &share, err);
		for (unsigned i = 0; i < share.n && !ret; i++)
			size->rows += share.rows[i].n + share.rows[i].zero;
		size->cols = share.cols.n + share.cols.zero;
		*finer = share.finer;
	}
	return ret;
}

static int check_row(const struct sl_model *model, const struct sl_engine *engine, const struct sl_layout *layout,
		     unsigned s, uint64_t layer, unsigned r, struct sl_error *err)
{
	const struct sl_bound *bound = sl_bound_at(model, s, layer, r, 0);
	const struct sl_weight *row = sl_row_in(engine, &model->arch->stacks[s].weights[r]);
	struct sl_module module = { .storage = bound->storage,
				    .row = row,
				    .quant = &model->quant,
				    .part = model->arch->stacks[s].part,
				    .fixed = sl_has_input_scale(model, bound) };
	enum sl_gpu gpu = gpu_of(layout, model->gpu ? (enum sl_gpu)(model->gpu - 1) : SL_SM90);
	struct sl_asked asked;
	struct sl_matrix size;

	if (!bound->storage || sl_module_kind(row) == SL_OTHER)
		return 0;
	if (r && sl_are_fused(sl_row_in(engine, &model->arch->stacks[s].weights[r - 1]), row))
		return 0;
	int ret = module_size(model, engine, layout, s, layer, r, &size, &module.finer, err);
	if (ret)
		return ret;
	ask(model, engine, layout, gpu, &module, size.rows, size.cols, &asked);
	const struct sl_choice *choice = sl_choose(engine->choices, &asked);
	if (choice && !choice->refused)
		return 0;
	return refuse(choice, engine, &module, gpu, row->name, err);
}

int sl_process_check(const struct sl_model *model, const struct sl_engine *engine, const struct sl_layout *layout,
		     struct sl_error *err)
{
	int ret = sl_check_modules(model, engine, layout, err);

	for (unsigned s = 0; s < model->arch->n_stacks && !ret; s++) {
		const struct sl_stack *stack = &model->arch->stacks[s];
		uint64_t layers = sl_stack_layers(model, stack);
		for (uint64_t l = 0; l < layers && !ret; l++) {
			for (unsigned r = 0; r < stack->n_weights && !ret; r++)
				ret = check_row(model, engine, layout, s, l, r, err);
		}
	}
	return ret;
}

void sl_process_settle(const struct sl_model *model, const struct sl_engine *engine, struct sl_layout *layout)
{
	struct sl_layout with = *layout;

	for (int k = SL_KERNELS_AUTO; engine->picks_kernels && !layout->kernels && k < SL_N_KERNELS; k++) {
		struct sl_error unused = SL_ERROR_INIT;
		with.kernels = (enum sl_kernels)k;
		if (sl_layout_check(model, engine, &with, &unused) == 0) {
			layout->kernels = with.kernels;
			return;
		}
	}
}

/* ---- the manifest ---- */

/* One of the texts of what was done, the first first, without saying the same twice in turn. */
static void describe_done(struct sl_text *text, const struct sl_done *done,
			  const char *(*say)(const struct sl_recipe *), const char *between)
{
	const struct sl_done *all[SL_STEPS_MAX];
	char said[1024];
	unsigned n = 0, len = 0;

	for (; done && n < SL_STEPS_MAX; done = done->before)
		all[n++] = done;
	for (unsigned i = n; i-- > 0;) {
		if (i + 1 < n && say(all[i]->recipe) == say(all[i + 1]->recipe))
			continue;
		len += (unsigned)snprintf(said + len, sizeof(said) - len, "%s%s", i + 1 < n ? between : "",
					  say(all[i]->recipe));
		len = len < sizeof(said) ? len : sizeof(said) - 1;
	}
	sl_text_json_string(text, said);
}

static const char *name_of(const struct sl_recipe *recipe)
{
	return recipe->name;
}

static const char *what_of(const struct sl_recipe *recipe)
{
	return recipe->says;
}

static const char *arithmetic_of(const struct sl_recipe *recipe)
{
	return recipe->arithmetic;
}

static void describe(struct sl_text *text, const struct sl_output *t)
{
	sl_text_json_string(text, t->name);
	sl_text_printf(text, ": { ");
	if (t->kernel) {
		sl_text_printf(text, "\"kernel\": ");
		sl_text_json_string(text, t->kernel);
		sl_text_printf(text, ", ");
	}
	if (t->done) {
		sl_text_printf(text, "\"recipe\": ");
		describe_done(text, t->done, name_of, " + ");
		sl_text_printf(text, ", \"done\": ");
		describe_done(text, t->done, what_of, "; then ");
		sl_text_printf(text, ", \"arithmetic\": ");
		describe_done(text, t->done, arithmetic_of, "; then ");
	} else {
		sl_text_printf(text, "\"recipe\": null, \"done\": \"as loaded\"");
	}
	if (t->turned)
		sl_text_printf(text, ", \"view\": \"last two axes swapped\"");
	sl_text_printf(text, " }");
}

int sl_serve_manifest(struct sl_plan *plan)
{
	const struct sl_view *view = plan->view;
	struct sl_text text = SL_TEXT_INIT;
	char layout[SL_LAYOUT_NAME_MAX];

	sl_text_printf(
		&text,
		"{\n  \"engine\": \"%s\", \"version\": \"%s\", \"layout\": \"%s\", \"rank\": %u, \"gpu\": \"%s\",\n"
		"  \"tensors\": {",
		plan->engine->title, plan->engine->version, sl_layout_format(&view->layout, plan->engine, layout),
		view->rank, sl_gpu_names[plan->gpu]);
	for (uint32_t i = 0; i < view->n_tensors; i++) {
		sl_text_printf(&text, "%s\n    ", i ? "," : "");
		describe(&text, &view->tensors[i]);
	}
	sl_text_printf(&text, "\n  }\n}\n");
	char *kept = text.failed ? NULL : sl_arena_strndup(&plan->view->arena, text.bytes, text.len);
	size_t len = text.len;
	sl_text_release(&text);
	return kept ? sl_plan_text_file(plan, "manifest.json", kept, len) : out_of_memory(plan);
}
