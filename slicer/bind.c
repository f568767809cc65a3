/*
 * bind.c - see bind.h. Lookup goes from the architecture to the checkpoint, so that what is missing is named exactly;
 * a mark per tensor then shows what was not asked for.
 */
#include "slicer/bind.h"

#include "slicer/convert.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How many names a message lists. */
enum { LISTED = 3 };

/* Names collected for one message. */
struct list {
	uint64_t n;
	size_t len;
	char text[600];
};

struct binder {
	struct sl_model *model;
	unsigned char *claimed; /* per tensor */
	struct list missing;
	const struct sl_tensor *unfit; /* the first weight that is there, in a dtype that no format of the scheme has */
	const struct sl_tensor *odd_scale; /* the first scale of a KV cache that is not one number */
	bool has_scales;		   /* of KV caches */
	/* Where the module before was found, and per expert that of the row before: the next ones are close by. */
	uint32_t last, *near;
	uint64_t room_near;
};

static void list_add(struct list *list, const char *name)
{
	char shown[200];

	if (list->n++ < LISTED)
		list->len +=
			(size_t)snprintf(list->text + list->len, sizeof(list->text) - list->len, "%s'%s'",
					 list->n > 1 ? ", " : "", sl_escape(shown, sizeof(shown), name, strlen(name)));
}

static const char *list_rest(const struct list *list, char *out, size_t size)
{
	out[0] = '\0';
	if (list->n > LISTED)
		snprintf(out, size, " and %llu more", (unsigned long long)(list->n - LISTED));
	return out;
}

uint64_t sl_stack_layers(const struct sl_model *model, const struct sl_stack *stack)
{
	return strchr(stack->name, '%') ? model->config.dims[stack->part].layers : 1;
}

/* Append `n` bytes to a name of SL_MODULE_NAME_MAX bytes at most, of which `len` are there; returns the new length. Names are
 * made for every tensor of every rank: this is what snprintf would do, at a tenth of its cost. */
static size_t append(char *name, size_t len, const char *bytes, size_t n)
{
	if (n > SL_MODULE_NAME_MAX - 1 - len)
		n = SL_MODULE_NAME_MAX - 1 - len;
	memcpy(name + len, bytes, n);
	name[len + n] = '\0';
	return len + n;
}

size_t sl_name_append(char *name, size_t len, const char *text)
{
	return append(name, len, text, strlen(text));
}

static size_t append_number(char *name, size_t len, uint64_t number)
{
	char digits[20];
	size_t at = sizeof(digits);

	do
		digits[--at] = (char)('0' + number % 10);
	while (number /= 10);
	return append(name, len, digits + at, sizeof(digits) - at);
}

/* `text` with `number` in place of its mark. */
static size_t append_marked(char *name, size_t len, const char *text, const char *mark, uint64_t number)
{
	const char *at = strstr(text, mark);

	if (!at)
		return sl_name_append(name, len, text);
	len = append(name, len, text, (size_t)(at - text));
	len = append_number(name, len, number);
	return sl_name_append(name, len, at + strlen(mark));
}

size_t sl_stack_prefix(const char *name, uint64_t layer, char *out)
{
	return append_marked(out, 0, name, "%u", layer);
}

size_t sl_name_append_expert(char *name, size_t len, const char *text, uint64_t expert)
{
	return append_marked(name, len, text, "%e", expert);
}

/* The stored name for a canonical one: wrapper, then the spelling's prefix for the canonical prefix. */
static void spell(const struct sl_model *model, const char *canonical, char *out)
{
	const char *front = "";

	for (size_t i = 0;
	     model->spelling && i < SL_COUNT(model->spelling->prefixes) && model->spelling->prefixes[i].canonical;
	     i++) {
		size_t len = strlen(model->spelling->prefixes[i].canonical);
		if (strncmp(canonical, model->spelling->prefixes[i].canonical, len) == 0) {
			front = model->spelling->prefixes[i].stored;
			canonical += len;
			break;
		}
	}
	size_t len = sl_name_append(out, 0, model->wrapper);
	len = sl_name_append(out, len, front);
	sl_name_append(out, len, canonical);
}

/* A module's stored name, and where the tensors whose names begin with it do. */
struct module {
	char name[SL_MODULE_NAME_MAX];
	size_t len;
	size_t head;	  /* of the name, up to the expert's number */
	const char *tail; /* what comes behind the number; NULL: there is none */
	uint32_t first;
};

/* The name up to the expert's number; all of it where there is none. */
static void begin_module(const struct binder *b, const struct sl_stack *stack, uint64_t layer,
			 const struct sl_weight *row, struct module *m)
{
	char canonical[SL_MODULE_NAME_MAX];
	const char *mark = strstr(row->name, "%e");
	size_t len = sl_stack_prefix(stack->name, layer, canonical);

	append(canonical, len, row->name, mark ? (size_t)(mark - row->name) : strlen(row->name));
	spell(b->model, canonical, m->name);
	m->head = strlen(m->name);
	m->tail = mark ? mark + 2 : NULL;
}

/* The whole name. */
static void name_module(uint64_t expert, struct module *m)
{
	m->name[m->head] = '\0';
	m->len = m->head;
	if (m->tail)
		m->len = sl_name_append(m->name, append_number(m->name, m->head, expert), m->tail);
}

/* An expert's modules follow one another. In the order of names 10 to 19 come behind 1, and 2 behind all of these. */
static uint32_t hint_for(const struct binder *b, uint64_t expert, uint64_t n, bool same_experts)
{
	if (n == 1 || (!same_experts && expert == 0))
		return b->last;
	if (same_experts)
		return b->near[expert];
	return b->near[expert % 10 ? expert - 1 : expert / 10];
}

static const struct sl_tensor *look_up(const struct binder *b, const struct module *m, const char *suffix)
{
	const struct sl_shards *shards = &b->model->shards;
	int order = -1;

	for (uint32_t i = m->first; suffix && order < 0 && i < shards->n_tensors; i++) {
		const char *name = shards->tensors[i].name;
		if (strncmp(name, m->name, m->len) != 0)
			return NULL;
		order = strcmp(name + m->len, suffix);
		if (order == 0)
			return &shards->tensors[i];
	}
	return NULL;
}

/* The row of the word embedding: every architecture has one. */
static const struct sl_weight *embedding_row(const struct sl_arch *arch, const struct sl_stack **stack)
{
	for (unsigned s = 0; s < arch->n_stacks; s++) {
		for (unsigned r = 0; r < arch->stacks[s].n_weights; r++) {
			if (arch->stacks[s].weights[r].flags & SL_IS_EMBED) {
				*stack = &arch->stacks[s];
				return &arch->stacks[s].weights[r];
			}
		}
	}
	__builtin_unreachable();
}

/* No spelling has the embedding: say what the checkpoint has in its place. */
static int no_spelling(const struct binder *b, struct sl_error *err)
{
	const struct sl_shards *shards = &b->model->shards;
	const struct sl_stack *stack;
	const struct sl_weight *row = embedding_row(b->model->arch, &stack);
	char expected[SL_MODULE_NAME_MAX], tail[SL_MODULE_NAME_MAX];

	size_t expected_len = sl_stack_prefix(stack->name, 0, expected);
	expected_len = sl_name_append(expected, expected_len, row->name);
	sl_name_append(expected, expected_len, ".weight");
	size_t tail_len = (size_t)snprintf(tail, sizeof(tail), "%s.weight", row->name);
	for (uint32_t i = 0; i < shards->n_tensors; i++) {
		const char *name = shards->tensors[i].name;
		size_t len = strlen(name);
		if (len > tail_len && strcmp(name + len - tail_len, tail) == 0)
			return sl_fail(err, EINVAL,
				       "prefix mismatch: the checkpoint has '%s', the architecture %s names it '%s'",
				       SL_ESC(name), b->model->config.architecture, expected);
	}
	return sl_fail(err, EINVAL, "tensor '%s' is missing, which architecture %s must have", expected,
		       b->model->config.architecture);
}

/* Choose wrapper and spelling: the first pair under which the word embedding is stored. */
static int choose_spelling(struct binder *b, struct sl_error *err)
{
	static const char *const wrappers[] = { "", "_orig_mod.", "module.", "base_model.model." };
	const struct sl_arch *arch = b->model->arch;
	const struct sl_stack *stack;
	const struct sl_weight *row = embedding_row(arch, &stack);
	struct module m;

	for (size_t w = 0; w < SL_COUNT(wrappers); w++) {
		b->model->wrapper = wrappers[w];
		for (unsigned s = 0; s <= arch->n_spellings; s++) {
			b->model->spelling = s ? &arch->spellings[s - 1] : NULL;
			begin_module(b, stack, 0, row, &m);
			name_module(0, &m);
			m.first = sl_shards_seek(&b->model->shards, m.name);
			if (look_up(b, &m, ".weight"))
				return 0;
		}
	}
	return no_spelling(b, err);
}

/* ---- one module ---- */

static uint32_t claim(struct binder *b, const struct sl_tensor *tensor)
{
	uint32_t index = (uint32_t)(tensor - b->model->shards.tensors);

	b->claimed[index] = 1;
	return index + 1;
}

static bool may_be_absent(const struct sl_model *model, const struct sl_weight *row)
{
	if (row->flags & SL_IS_HEAD)
		return model->tied || (model->arch->flags & (SL_NO_HEAD | SL_ENCODER));
	return row->flags & (SL_OPTIONAL | SL_UNLOADED | SL_INDICES);
}

static bool has_dtype(const struct sl_component *c, const struct sl_tensor *tensor)
{
	switch (c->dtype) {
	case SL_FLOAT:
		return sl_dtype_is_plain(tensor->dtype);
	case SL_INTEGER:
		return tensor->dtype == SL_I64 || tensor->dtype == SL_I32;
	default:
		return tensor->dtype == c->dtype;
	}
}

static uint64_t elements(const struct sl_tensor *tensor)
{
	return tensor->len * 8 / sl_dtypes[tensor->dtype].bits;
}

/* A scalar has one element, a matrix of scales one per row: that tells per-tensor from per-channel. Another number is taken
 * for the latter, so that it is refused with both numbers. */
static bool has_form(const struct sl_component *c, const struct sl_tensor *tensor, uint64_t rows)
{
	if (c->form == SL_SCALAR)
		return elements(tensor) == 1;
	return c->form != SL_MATRIX || c->in != SL_UNIT_ALL || c->out != SL_UNIT_1 || elements(tensor) > 1 || rows == 1;
}

/* Are the tensors of this format there, in the right dtypes? Fills `bound`; claims nothing. */
static bool has_storage(const struct binder *b, const struct sl_storage *storage, const struct module *m,
			struct sl_bound *bound)
{
	uint64_t rows = 0;

	*bound = (struct sl_bound){ .storage = storage };
	for (unsigned i = 0; i < storage->n_components; i++) {
		const struct sl_component *c = &storage->components[i];
		const struct sl_tensor *tensor = look_up(b, m, c->stored);
		if (tensor && i == 0)
			rows = tensor->n_dims ? tensor->shape[0] : 1;
		if (tensor && has_dtype(c, tensor) && has_form(c, tensor, rows))
			bound->tensors[i] = (uint32_t)(tensor - b->model->shards.tensors) + 1;
		else if (tensor || c->need == SL_REQUIRED)
			return false;
	}
	/* Fills alone make no format: at least one component must be stored. */
	return bound->tensors[0] != 0;
}

/* A float weight in a scheme that quantises whatever no list excepts: the engine converts it, and fills its scales. */
static bool is_converted(const struct binder *b, const struct sl_weight *row, const struct sl_bound *bound,
			 const struct module *m)
{
	const struct sl_quant *quant = &b->model->quant;

	if (!quant->scheme->convert_unlisted || bound->storage != &sl_plain ||
	    (row->role != SL_COLUMN && row->role != SL_ROW))
		return false;
	return !sl_quant_ignores(quant, &b->model->config, m->name);
}

/* The format in which a module is stored: the first of its scheme's that is there. */
static void find_storage(const struct binder *b, const struct sl_weight *row, const struct module *m,
			 struct sl_bound *bound)
{
	const struct sl_storage *const *storages = b->model->quant.scheme->storages;
	bool plain_only = row->role == SL_EMBEDDING || row->in == SL_NO_AXIS ||
			  (row->flags & (SL_PLAIN_ONLY | SL_UNLOADED | SL_UNFUSED));

	for (const struct sl_storage *const *f = storages; *f; f++) {
		if ((!plain_only || *f == &sl_plain) && has_storage(b, *f, m, bound)) {
			if (is_converted(b, row, bound, m))
				bound->storage = storages[0];
			return;
		}
	}
	*bound = (struct sl_bound){ .storage = NULL };
}

static void find_bare(const struct binder *b, const struct module *m, struct sl_bound *bound)
{
	const struct sl_tensor *tensor = look_up(b, m, "");

	*bound = (struct sl_bound){ .storage = tensor ? &sl_plain : NULL };
	if (tensor)
		bound->tensors[0] = (uint32_t)(tensor - b->model->shards.tensors) + 1;
}

static void claim_module(struct binder *b, const struct sl_bound *bound)
{
	for (unsigned i = 0; bound->storage && i < bound->storage->n_components; i++) {
		if (bound->tensors[i])
			b->claimed[bound->tensors[i] - 1] = 1;
	}
}

/* Is it this format when config.json says what it says? Formats that share their first tensor are told apart so. */
static bool is_configured(const struct sl_model *model, const struct sl_storage *storage)
{
	for (unsigned i = 0; i < storage->n_components; i++) {
		if (storage->components[i].out == SL_UNIT_BLOCK && !model->quant.block[0])
			return false;
	}
	return true;
}

/* What a module whose first tensor is there lacks to be in this format, or has in another dtype. */
static bool list_unlike(struct binder *b, const struct sl_storage *storage, struct module *m)
{
	const struct sl_tensor *first = look_up(b, m, storage->components[0].stored);

	if (!first || !is_configured(b->model, storage) || !has_dtype(&storage->components[0], first))
		return false;
	for (unsigned i = 1; i < storage->n_components; i++) {
		const struct sl_tensor *tensor = look_up(b, m, storage->components[i].stored);
		if (!tensor && storage->components[i].need == SL_REQUIRED) {
			sl_name_append(m->name, m->len, storage->components[i].stored);
			list_add(&b->missing, m->name);
			return true;
		}
		if (tensor && !has_dtype(&storage->components[i], tensor)) {
			b->unfit = b->unfit ? b->unfit : tensor;
			return true;
		}
	}
	return false;
}

/* A module in no format: what it lacks to be in the first one whose own tensor is there, else that tensor. */
static void list_lacking(struct binder *b, const struct sl_weight *row, struct module *m)
{
	const char *suffix = row->flags & SL_BARE ? "" : ".weight";

	for (const struct sl_storage *const *f = b->model->quant.scheme->storages; *f && !(row->flags & SL_BARE); f++) {
		if (list_unlike(b, *f, m))
			return;
	}
	const struct sl_tensor *weight = look_up(b, m, suffix);
	sl_name_append(m->name, m->len, suffix);
	if (!weight)
		list_add(&b->missing, m->name);
	else if (!b->unfit)
		b->unfit = weight;
}

static void bind_bias(struct binder *b, const struct sl_weight *row, struct module *m, struct sl_bound *bound)
{
	const struct sl_tensor *bias = look_up(b, m, ".bias");

	if (bias) {
		bound->bias = claim(b, bias);
	} else if (!(row->flags & (SL_OPTIONAL | SL_UNLOADED)) && bound->storage) {
		sl_name_append(m->name, m->len, ".bias");
		list_add(&b->missing, m->name);
	}
}

static void bind_module(struct binder *b, const struct sl_weight *row, struct module *m, bool has_bias,
			struct sl_bound *bound)
{
	if (row->flags & SL_BARE)
		find_bare(b, m, bound);
	/* Stacked experts are bare names in an unquantised checkpoint, with suffixes of their own in a quantised one. */
	if (!bound->storage)
		find_storage(b, row, m, bound);
	claim_module(b, bound);
	if (has_bias)
		bind_bias(b, row, m, bound);
	if (!bound->storage && !may_be_absent(b->model, row))
		list_lacking(b, row, m);
}

/* ---- experts ---- */

/* The first expert's module, as one that the others are compared with: if all tensors whose names begin with the module's have
 * the same ends of names, dtypes and shapes, then whatever was found out about the first one is true of the other. */
struct pattern {
	uint32_t first, n; /* its tensors; n 0: it is no pattern */
	size_t name_len;
	struct sl_bound bound;
};

static bool begins_with(const struct sl_tensor *tensor, const struct module *m)
{
	return tensor->name_len >= m->len && memcmp(tensor->name, m->name, m->len) == 0;
}

/* A module that nothing is said about but its tensors: not its name (lists of exceptions), and no bias that is missing. */
static void make_pattern(const struct binder *b, const struct module *m, bool has_bias, const struct sl_bound *bound,
			 struct pattern *p)
{
	const struct sl_shards *shards = &b->model->shards;

	*p = (struct pattern){ .first = m->first, .name_len = m->len, .bound = *bound };
	if (!bound->storage || (has_bias && !bound->bias) || b->model->quant.scheme->convert_unlisted)
		return;
	while (m->first + p->n < shards->n_tensors && begins_with(&shards->tensors[m->first + p->n], m))
		p->n++;
}

static bool same_shape(const struct sl_tensor *a, const struct sl_tensor *b)
{
	return a->dtype == b->dtype && a->n_dims == b->n_dims &&
	       (a->shape == b->shape || memcmp(a->shape, b->shape, a->n_dims * sizeof(*a->shape)) == 0);
}

/* Are the tensors at m->first those of a module, all of them, and like the pattern's? */
static bool is_like(const struct binder *b, const struct pattern *p, const struct module *m)
{
	const struct sl_shards *shards = &b->model->shards;
	const struct sl_tensor *like = &shards->tensors[p->first], *t = &shards->tensors[m->first];

	if (p->n > shards->n_tensors || m->first > shards->n_tensors - p->n || (m->first && begins_with(t - 1, m)) ||
	    (m->first + p->n < shards->n_tensors && begins_with(t + p->n, m)))
		return false;
	for (uint32_t i = 0; i < p->n; i++, like++, t++) {
		size_t tail = like->name_len - p->name_len;
		if (!begins_with(t, m) || t->name_len != m->len + tail || !same_shape(like, t) ||
		    memcmp(t->name + m->len, like->name + p->name_len, tail) != 0)
			return false;
	}
	return true;
}

/* The same module further on. */
static void bind_like(struct binder *b, const struct pattern *p, uint32_t first, struct sl_bound *bound)
{
	uint32_t further = first - p->first; /* or back: numbers wrap */

	*bound = p->bound;
	for (unsigned i = 0; i < p->bound.storage->n_components; i++) {
		if (bound->tensors[i])
			b->claimed[(bound->tensors[i] += further) - 1] = 1;
	}
	if (bound->bias)
		b->claimed[(bound->bias += further) - 1] = 1;
}

/* How many experts below `n` have numbers that begin with this one's digits: in the order of names they follow it. */
static uint32_t n_following(uint64_t expert, uint64_t n)
{
	uint64_t sum = 1;

	for (uint64_t low = expert * 10, high = low + 10; expert && low < n; low *= 10, high *= 10)
		sum += (high < n ? high : n) - low;
	return (uint32_t)sum;
}

/* Where an expert's module should be, if all experts have as many tensors as the first one has. */
static uint32_t foresee(const struct binder *b, const struct pattern *p, uint64_t expert, uint64_t n, bool same_experts,
			uint32_t first_before)
{
	uint32_t each = expert > 1 ? b->near[1] - b->near[0] : 0;

	if (same_experts)
		return b->near[expert] + (p->first - first_before);
	if (expert % 10 == 0)
		return b->near[expert / 10] + each;
	return b->near[expert - 1] + each * n_following(expert - 1, n);
}

/* ---- rows ---- */

/* A row's `n` modules of one layer. *n_near is how many experts of the layer have been found before; n from then on. Returns
 * whether all are stored as the first one is, as far as that is known here. */
static bool bind_row(struct binder *b, const struct sl_stack *stack, uint64_t layer, const struct sl_weight *row,
		     uint64_t n, uint64_t *n_near, struct sl_bound *bound)
{
	const struct sl_config *config = &b->model->config;
	struct pattern pattern = { 0 };
	uint32_t first_before = b->near[0];
	bool alike = n > 1;
	struct module m;

	if (row->when && !row->when(config, stack->part, layer))
		return false;
	bool has_bias = row->bias && row->bias(config, stack->part, layer);
	begin_module(b, stack, layer, row, &m);
	for (uint64_t e = 0; e < n; e++) {
		bool like = false;
		name_module(e, &m);
		if (pattern.n) {
			m.first = foresee(b, &pattern, e, n, *n_near == n, first_before);
			like = is_like(b, &pattern, &m);
		}
		if (!like) {
			m.first = sl_shards_seek_near(&b->model->shards, m.name, hint_for(b, e, n, *n_near == n));
			like = pattern.n && is_like(b, &pattern, &m);
		}
		b->last = b->near[e] = m.first;
		if (like)
			bind_like(b, &pattern, m.first, &bound[e]);
		else
			bind_module(b, row, &m, has_bias, &bound[e]);
		if (e == 0 && n > 1)
			make_pattern(b, &m, has_bias, bound, &pattern);
		alike &= like || e == 0;
	}
	*n_near = n;
	return alike;
}

/* ---- all modules ---- */

uint64_t sl_row_modules(const struct sl_model *model, const struct sl_stack *stack, const struct sl_weight *row)
{
	uint64_t experts = model->config.dims[stack->part].experts;

	return strstr(row->name, "%e") && experts ? experts : 1;
}

/* Count a stack's modules and take room for them. More than a hundred per tensor cannot be a model's. */
static int make_room(struct sl_model *model, const struct sl_stack *stack, struct sl_binding *binding, uint64_t layers,
		     struct sl_error *err)
{
	uint64_t per_layer = 0, most = 100u * ((uint64_t)model->shards.n_tensors + 1);

	binding->row_start = sl_arena_array(&model->arena, stack->n_weights + 1u, sizeof(*binding->row_start));
	if (!binding->row_start)
		return sl_fail(err, ENOMEM, "out of memory");
	for (unsigned r = 0; r < stack->n_weights; r++) {
		binding->row_start[r] = (uint32_t)per_layer;
		per_layer += sl_row_modules(model, stack, &stack->weights[r]);
		if (per_layer > most || layers > most / per_layer)
			return sl_fail(err, EINVAL,
				       "config.json: %llu layers of %llu experts, but the checkpoint has %u tensors",
				       (unsigned long long)layers,
				       (unsigned long long)model->config.dims[stack->part].experts,
				       model->shards.n_tensors);
	}
	binding->row_start[stack->n_weights] = binding->per_layer = (uint32_t)per_layer;
	binding->modules = sl_arena_array(&model->arena, layers * per_layer, sizeof(struct sl_bound));
	binding->alike = sl_arena_array(&model->arena, layers * stack->n_weights, sizeof(bool));
	return binding->modules && binding->alike ? 0 : sl_fail(err, ENOMEM, "out of memory");
}

/* Is what a row stands for stored in another form, which a row before it has? */
static bool is_stored_otherwise(const struct sl_stack *stack, const struct sl_binding *binding, uint64_t layer,
				unsigned r)
{
	const struct sl_weight *rows = stack->weights;

	for (unsigned other = 0; (rows[r].flags & SL_INSTEAD) && other < r; other++) {
		if (!(rows[other].flags & SL_INSTEAD) && rows[other].fused &&
		    strcmp(rows[other].fused, rows[r].fused) == 0 &&
		    binding->modules[layer * binding->per_layer + binding->row_start[other]].storage)
			return true;
	}
	return false;
}

static void bind_layer(struct binder *b, const struct sl_stack *stack, const struct sl_binding *binding, uint64_t layer)
{
	struct sl_bound *module = &binding->modules[layer * binding->per_layer];
	uint64_t n_near = 0;

	for (unsigned r = 0; r < stack->n_weights; r++) {
		uint64_t n = binding->row_start[r + 1] - binding->row_start[r];
		if (!is_stored_otherwise(stack, binding, layer, r))
			binding->alike[layer * stack->n_weights + r] =
				bind_row(b, stack, layer, &stack->weights[r], n, &n_near, module);
		module += n;
	}
}

static const struct sl_tensor *find_cache_scale(const struct sl_model *model, const struct sl_stack *stack,
						const struct sl_attention *attn, uint64_t layer, const char *name,
						size_t name_len)
{
	char canonical[SL_MODULE_NAME_MAX], stored[SL_MODULE_NAME_MAX];
	size_t len = sl_stack_prefix(stack->name, layer, canonical);

	len = sl_name_append(canonical, len, attn->stored);
	len = sl_name_append(canonical, len, ".");
	append(canonical, len, name, name_len);
	spell(model, canonical, stored);
	return sl_shards_find(&model->shards, stored);
}

bool sl_cache_scale_find(const struct sl_model *model, const struct sl_stack *stack, const struct sl_attention *attn,
			 uint64_t layer, const char *names, struct sl_stored_scale *found)
{
	*found = (struct sl_stored_scale){ .name = names };
	while (attn->stored && !found->tensor) {
		found->name += found->len;
		found->name += *found->name == '|';
		found->len = strcspn(found->name, "|");
		if (!found->len)
			return false;
		found->tensor = find_cache_scale(model, stack, attn, layer, found->name, found->len);
	}
	return found->tensor != NULL;
}

/* The stored scales of a layer's KV cache: claimed here, found again when a view needs them. Every name that is there counts
 * as known, also one that another takes precedence over. */
static void claim_cache_scales(struct binder *b, const struct sl_stack *stack, const struct sl_attention *attn,
			       uint64_t layer)
{
	const struct sl_scheme *scheme = b->model->quant.scheme;
	struct sl_stored_scale found;

	for (unsigned i = 0; i < scheme->n_cache_scales; i++) {
		const char *names = scheme->cache_scales[i].stored;
		while (sl_cache_scale_find(b->model, stack, attn, layer, names, &found)) {
			claim(b, found.tensor);
			if (!b->odd_scale &&
			    (elements(found.tensor) != 1 || !sl_can_convert(found.tensor->dtype, SL_F32)))
				b->odd_scale = found.tensor;
			b->has_scales = true;
			names = found.name + found.len;
		}
	}
}

static int refuse_unfit(const struct sl_model *model, const struct sl_tensor *tensor, struct sl_error *err)
{
	const struct sl_shard *shard = &model->shards.shards[tensor->shard];

	if (model->quant.scheme == sl_schemes[0])
		return sl_fail(
			err, EINVAL,
			"%s: tensor '%s' is %s, but config.json has no quantization_config that would explain it",
			shard->name, SL_ESC(tensor->name), sl_dtypes[tensor->dtype].name);
	return sl_fail(err, EINVAL,
		       "%s: tensor '%s' is %s, which no format of '%s' has there, or its scales are of another form",
		       shard->name, SL_ESC(tensor->name), sl_dtypes[tensor->dtype].name, model->quant.scheme->method);
}

static int refuse_scale(const struct sl_model *model, const struct sl_tensor *tensor, struct sl_error *err)
{
	return sl_fail(err, EINVAL,
		       "%s: tensor '%s' has %llu elements of %s, but the scale of a KV cache is one number",
		       model->shards.shards[tensor->shard].name, SL_ESC(tensor->name),
		       (unsigned long long)elements(tensor), sl_dtypes[tensor->dtype].name);
}

static bool has_quantised(const struct sl_model *model)
{
	for (unsigned s = 0; s < model->arch->n_stacks; s++) {
		const struct sl_binding *b = &model->bound[s];
		uint64_t n = b->per_layer * sl_stack_layers(model, &model->arch->stacks[s]);
		for (uint64_t m = 0; m < n; m++) {
			if (b->modules[m].storage && b->modules[m].storage != &sl_plain)
				return true;
		}
	}
	return false;
}

/* A configuration left over from before weights were converted back: the engine would expect scales that are not there. */
static int check_quantised(const struct binder *b, struct sl_error *err)
{
	const struct sl_quant *quant = &b->model->quant;

	if (quant->scheme == sl_schemes[0] || b->has_scales || has_quantised(b->model))
		return 0;
	return sl_fail(err, EINVAL,
		       "%s says the weights are quantised (%s), but none is and there is no scale: take that out of it",
		       quant->object ? "config.json" : "the quantiser's own configuration", quant->scheme->method);
}

static int make_near(struct binder *b, uint64_t experts, struct sl_error *err)
{
	if (experts <= b->room_near)
		return 0;
	uint32_t *grown = reallocarray(b->near, experts, sizeof(*grown));
	if (!grown)
		return sl_fail(err, ENOMEM, "out of memory");
	b->near = grown;
	b->room_near = experts;
	return 0;
}

static int bind_stacks(struct binder *b, struct sl_error *err)
{
	struct sl_model *model = b->model;
	const struct sl_arch *arch = model->arch;

	for (unsigned s = 0; s < arch->n_stacks; s++) {
		uint64_t layers = sl_stack_layers(model, &arch->stacks[s]);
		int ret = make_room(model, &arch->stacks[s], &model->bound[s], layers, err);
		if (!ret)
			ret = make_near(b, model->bound[s].per_layer, err);
		if (ret)
			return ret;
		for (uint64_t l = 0; l < layers; l++) {
			bind_layer(b, &arch->stacks[s], &model->bound[s], l);
			for (unsigned a = 0; a < SL_ATTNS_MAX; a++)
				claim_cache_scales(b, &arch->stacks[s], &arch->stacks[s].attns[a], l);
		}
	}
	if (b->unfit)
		return refuse_unfit(model, b->unfit, err);
	if (b->odd_scale)
		return refuse_scale(model, b->odd_scale, err);
	if (b->missing.n) {
		char rest[40];
		return sl_fail(err, EINVAL, "%llu tensor%s missing that %s needs: %s%s",
			       (unsigned long long)b->missing.n, b->missing.n > 1 ? "s are" : " is",
			       model->config.architecture, b->missing.text, list_rest(&b->missing, rest, sizeof(rest)));
	}
	return 0;
}

/* ---- shapes ---- */

/* Where a module is. */
struct place {
	const struct sl_stack *stack;
	uint64_t layer;
};

const struct sl_tensor *sl_bound_tensor(const struct sl_model *model, const struct sl_bound *bound, unsigned component)
{
	return bound->tensors[component] ? &model->shards.tensors[bound->tensors[component] - 1] : NULL;
}

const struct sl_tensor *sl_bound_bias(const struct sl_model *model, const struct sl_bound *bound)
{
	return bound->bias ? &model->shards.tensors[bound->bias - 1] : NULL;
}

struct sl_matrix sl_stored_matrix(const struct sl_tensor *tensor, const struct sl_weight *row)
{
	unsigned first = row->flags & SL_STACKED ? 1 : 0;
	struct sl_matrix m = { tensor->n_dims > first ? tensor->shape[first] : 1, 1 };

	if (row->flags & SL_FLAT)
		return (struct sl_matrix){ elements(tensor), 1 };
	for (unsigned i = first + 1; i < tensor->n_dims; i++)
		m.cols *= tensor->shape[i];
	return m;
}

/* Elements in one stored word of a packed component. */
static uint64_t pack_of(const struct sl_model *model, const struct sl_tensor *tensor)
{
	unsigned bits = tensor->dtype == SL_I32 && model->quant.bits ? model->quant.bits : 4;

	return sl_dtypes[tensor->dtype].bits / bits;
}

static bool is_turned(const struct sl_weight *row, const struct sl_tensor *tensor, const struct sl_component *c)
{
	return c->turned || ((row->flags & SL_CONV1D) && tensor->n_dims > 1);
}

struct sl_matrix sl_logical_matrix(const struct sl_model *model, const struct sl_weight *row,
				   const struct sl_bound *bound)
{
	const struct sl_component *c = &bound->storage->components[0];
	const struct sl_tensor *tensor = sl_bound_tensor(model, bound, 0);
	struct sl_matrix m = sl_stored_matrix(tensor, row);

	if (is_turned(row, tensor, c))
		m = (struct sl_matrix){ m.cols, m.rows };
	m.rows *= c->out == SL_UNIT_PACK ? pack_of(model, tensor) : 1;
	m.cols *= c->in == SL_UNIT_PACK ? pack_of(model, tensor) : 1;
	return m;
}

/* Columns that share a scale, as the format or the configuration says it; 0: all of them, or it is not said. */
static uint64_t group_of(const struct sl_model *model, const struct sl_storage *storage)
{
	return storage->group ? storage->group : model->quant.group;
}

static uint64_t unit_of(const struct sl_model *model, const struct sl_tensor *tensor, enum sl_unit unit, unsigned axis,
			uint64_t group, uint64_t logical, uint64_t stored)
{
	switch (unit) {
	case SL_UNIT_1:
		return 1;
	case SL_UNIT_PACK:
		return tensor ? pack_of(model, tensor) : 1;
	case SL_UNIT_GROUP:
		if (stored == 1 && !group)
			return 0;
		return stored && logical % stored == 0 ? logical / stored : 0;
	case SL_UNIT_BLOCK:
		return model->quant.block[axis];
	case SL_UNIT_ALL:
	case SL_UNIT_NONE:
		return 0;
	}
	return 0;
}

struct sl_units sl_units_of(const struct sl_model *model, const struct sl_weight *row, const struct sl_bound *bound,
			    unsigned component)
{
	const struct sl_component *c = &bound->storage->components[component];
	const struct sl_tensor *tensor = sl_bound_tensor(model, bound, component);
	struct sl_matrix logical = sl_logical_matrix(model, row, bound), stored = { 0, 0 };

	if (tensor)
		stored = sl_stored_matrix(tensor, row);
	if (tensor && is_turned(row, tensor, c))
		stored = (struct sl_matrix){ stored.cols, stored.rows };
	uint64_t group = group_of(model, bound->storage);
	return (struct sl_units){ unit_of(model, tensor, c->out, 0, group, logical.rows, stored.rows),
				  unit_of(model, tensor, c->in, 1, group, logical.cols, stored.cols) };
}

uint64_t sl_kv_heads(const struct sl_model *model, enum sl_part part, const struct sl_weight *row, uint64_t out)
{
	const struct sl_dims *dims = &model->config.dims[part];
	uint64_t heads = out / dims->head_dim;

	if (dims->kv_heads)
		return dims->kv_heads;
	return row->out == SL_QKV ? (heads > dims->heads ? (heads - dims->heads) / 2 : 0) : heads;
}

/* What an axis should be; 0: whatever it is. */
static uint64_t expected(const struct sl_model *model, enum sl_part part, enum sl_dim dim)
{
	const struct sl_dims *d = &model->config.dims[part];
	uint64_t q = d->heads * d->head_dim, kv = d->kv_heads * d->head_dim;
	uint64_t lk = d->linear_k_heads * d->linear_k, lv = d->linear_v_heads * d->linear_v;
	const uint64_t sizes[SL_N_DIMS] = {
		[SL_HIDDEN] = d->hidden,
		[SL_Q] = q,
		[SL_KV] = kv,
		[SL_QKV] = kv ? q + 2 * kv : 0,
		[SL_HEAD_DIM] = d->head_dim,
		[SL_INTER] = d->inter,
		[SL_GATE_UP] = 2 * d->inter,
		[SL_VOCAB] = d->vocab,
		[SL_MOE_INTER] = d->moe_inter,
		[SL_MOE_GATE_UP] = 2 * d->moe_inter,
		[SL_MOE_PAIRS] = 2 * d->moe_inter,
		[SL_LINEAR_K] = lk,
		[SL_LINEAR_V] = lv,
		[SL_LINEAR_QKV] = 2 * lk + lv,
		[SL_LINEAR_HEADS] = d->linear_v_heads,
		[SL_GLOBAL_KV] = d->global_kv_heads * d->global_head_dim,
		[SL_INDEX_Q] = d->index_heads * d->index_dim,
	};

	return dim < SL_N_DIMS ? sizes[dim] : 0;
}

/* What config.json calls a dimension, for messages. */
static const char *dim_title(enum sl_dim dim)
{
	static const char *const titles[SL_N_DIMS + 1] = {
		[SL_ANY] = "size",
		[SL_HIDDEN] = "hidden size",
		[SL_Q] = "heads x head_dim",
		[SL_KV] = "kv heads x head_dim",
		[SL_QKV] = "(heads + 2 x kv heads) x head_dim",
		[SL_HEAD_DIM] = "head_dim",
		[SL_INTER] = "intermediate size",
		[SL_GATE_UP] = "2 x intermediate size",
		[SL_VOCAB] = "vocab_size",
		[SL_BY_HEADS] = "size",
		[SL_MOE_INTER] = "moe intermediate size",
		[SL_MOE_GATE_UP] = "2 x moe intermediate size",
		[SL_MOE_PAIRS] = "2 x moe intermediate size",
		[SL_LINEAR_K] = "linear key heads x head size",
		[SL_LINEAR_V] = "linear value heads x head size",
		[SL_LINEAR_QKV] = "(2 x linear key + value heads) x head size",
		[SL_LINEAR_HEADS] = "linear value heads",
		[SL_LINEAR_BY_KEYS] = "size",
		[SL_LEADING_HEADS] = "linear value heads",
		[SL_BY_GROUPS] = "size",
		[SL_GLOBAL_KV] = "global kv heads x global head_dim",
		[SL_INDEX_Q] = "index heads x their size",
		[SL_NO_AXIS] = "size",
	};

	return titles[dim];
}

/* Kv heads of one layer, where config.json has a list of them; 0: it does not say. */
static uint64_t listed_kv_heads(const struct sl_model *model, enum sl_part part, uint64_t layer)
{
	const struct sl_config *config = &model->config;
	uint32_t at = sl_config_element(config, part, SL_KV_HEADS_KEYS, layer);
	uint64_t n = 0;

	return at && config->json.tokens[at].type == SL_JSON_NUMBER && sl_json_u64(&config->json, at, &n) == 0 ? n : 0;
}

/* Where kv heads differ between layers, the rows say how many there are: whole ones, and as many as the list has. */
static int check_kv_rows(const struct sl_model *model, const struct place *at, const struct sl_tensor *tensor,
			 enum sl_dim dim, uint64_t size, struct sl_error *err)
{
	const struct sl_dims *d = &model->config.dims[at->stack->part];
	uint64_t q = dim == SL_QKV ? d->heads * d->head_dim : 0, unit = dim == SL_QKV ? 2 * d->head_dim : d->head_dim;
	uint64_t heads = listed_kv_heads(model, at->stack->part, at->layer);

	if (size <= q || (size - q) % unit)
		return sl_fail(err, EINVAL, "%s: tensor '%s': %llu rows are no whole kv heads of head_dim %llu",
			       model->shards.shards[tensor->shard].name, SL_ESC(tensor->name), (unsigned long long)size,
			       (unsigned long long)d->head_dim);
	if ((size - q) / unit == heads)
		return 0;
	return sl_fail(err, EINVAL, "%s: tensor '%s' has %llu kv heads, config.json's list %llu for layer %llu",
		       model->shards.shards[tensor->shard].name, SL_ESC(tensor->name),
		       (unsigned long long)((size - q) / unit), (unsigned long long)heads,
		       (unsigned long long)at->layer);
}

static int check_axis(const struct sl_model *model, const struct place *at, const struct sl_tensor *tensor,
		      const char *axis, enum sl_dim dim, uint64_t size, struct sl_error *err)
{
	enum sl_part part = at->stack->part;
	uint64_t want = expected(model, part, dim);

	if (!want && (dim == SL_KV || dim == SL_QKV))
		return check_kv_rows(model, at, tensor, dim, size, err);
	if (dim == SL_LEADING_HEADS && size < model->config.dims[part].linear_v_heads)
		want = model->config.dims[part].linear_v_heads;
	if (want && size != want)
		return sl_fail(err, EINVAL, "%s: tensor '%s': %llu %s, but config.json makes them %llu (%s)",
			       model->shards.shards[tensor->shard].name, SL_ESC(tensor->name), (unsigned long long)size,
			       axis, (unsigned long long)want, dim_title(dim));
	return 0;
}

static int check_inputs(const struct sl_model *model, const struct sl_tensor *tensor, uint64_t inputs,
			struct sl_error *err)
{
	if (tensor->n_dims == 1 && tensor->shape[0] == inputs)
		return 0;
	return sl_fail(err, EINVAL, "%s: tensor '%s' has no element for each of %llu inputs",
		       model->shards.shards[tensor->shard].name, SL_ESC(tensor->name), (unsigned long long)inputs);
}

/* Groups and blocks must be what the format and config.json say. */
static int check_groups(const struct sl_model *model, const struct sl_bound *bound, const struct sl_tensor *tensor,
			const struct sl_component *c, struct sl_matrix logical, struct sl_matrix stored,
			struct sl_units units, struct sl_error *err)
{
	const char *file = model->shards.shards[tensor->shard].name;
	uint64_t group = group_of(model, bound->storage);

	if (c->out == SL_UNIT_BLOCK && !units.out)
		return sl_fail(err, EINVAL,
			       "%s: tensor '%s' scales blocks, but config.json has no weight_block_size of two numbers",
			       file, SL_ESC(tensor->name));
	if (c->in != SL_UNIT_GROUP || (!units.in && stored.cols == 1))
		return 0;
	if (!units.in)
		return sl_fail(
			err, EINVAL,
			"%s: tensor '%s': %llu columns of scales do not divide %llu columns of weights into groups",
			file, SL_ESC(tensor->name), (unsigned long long)stored.cols, (unsigned long long)logical.cols);
	if (group && units.in != group)
		return sl_fail(err, EINVAL,
			       "%s: tensor '%s' has groups of %llu columns, but they should have %llu (%s)", file,
			       SL_ESC(tensor->name), (unsigned long long)units.in, (unsigned long long)group,
			       bound->storage->group ? bound->storage->name : "group_size");
	return 0;
}

/* A component that is a matrix must cover the logical one exactly in its units. */
static int check_component(const struct sl_model *model, const struct sl_weight *row, const struct sl_bound *bound,
			   unsigned i, struct sl_error *err)
{
	const struct sl_component *c = &bound->storage->components[i];
	const struct sl_tensor *tensor = sl_bound_tensor(model, bound, i);

	if (!tensor || (c->form != SL_MATRIX && c->form != SL_INPUTS))
		return 0;
	struct sl_matrix logical = sl_logical_matrix(model, row, bound), stored = sl_stored_matrix(tensor, row);
	if (c->form == SL_INPUTS)
		return check_inputs(model, tensor, logical.cols, err);
	struct sl_units units = sl_units_of(model, row, bound, i);
	if (is_turned(row, tensor, c))
		stored = (struct sl_matrix){ stored.cols, stored.rows };
	int ret = check_groups(model, bound, tensor, c, logical, stored, units, err);
	if (ret)
		return ret;
	uint64_t rows = units.out ? (logical.rows + units.out - 1) / units.out : 1;
	uint64_t cols = units.in ? (logical.cols + units.in - 1) / units.in : 1;
	if (stored.rows != rows || stored.cols != cols)
		return sl_fail(
			err, EINVAL, "%s: tensor '%s' is [%llu, %llu], but its weight [%llu, %llu] needs [%llu, %llu]",
			model->shards.shards[tensor->shard].name, SL_ESC(tensor->name), (unsigned long long)stored.rows,
			(unsigned long long)stored.cols, (unsigned long long)logical.rows,
			(unsigned long long)logical.cols, (unsigned long long)rows, (unsigned long long)cols);
	return 0;
}

/* There are as many experts as the configuration says, in a format that they may have. */
static int check_experts(const struct sl_model *model, const struct sl_stack *stack, const struct sl_weight *row,
			 const struct sl_bound *bound, const struct sl_tensor *t, struct sl_error *err)
{
	uint64_t experts = model->config.dims[stack->part].experts;

	if (((row->flags & SL_STACKED) || strstr(row->name, "%e")) && bound->storage->no_experts)
		return sl_fail(err, EINVAL, "%s: tensor '%s' is of an expert, stored as %s: %s",
			       model->shards.shards[t->shard].name, SL_ESC(t->name), bound->storage->name,
			       bound->storage->no_experts);

	if (strstr(row->name, "%e") && !experts)
		return sl_fail(err, EINVAL, "%s: tensor '%s' is of an expert, but config.json has no number of them",
			       model->shards.shards[t->shard].name, SL_ESC(t->name));
	if ((row->flags & SL_STACKED) && (t->n_dims < 2 || t->shape[0] != experts))
		return sl_fail(err, EINVAL, "%s: tensor '%s' has %llu experts, config.json %llu",
			       model->shards.shards[t->shard].name, SL_ESC(t->name),
			       (unsigned long long)(t->n_dims ? t->shape[0] : 0), (unsigned long long)experts);
	return 0;
}

/* Is it a vector with axes of one element around it, which this row may be? */
static bool is_flat(const struct sl_weight *row, const struct sl_tensor *tensor)
{
	unsigned longer = 0;

	for (unsigned i = 0; i < tensor->n_dims; i++)
		longer += tensor->shape[i] != 1;
	return (row->flags & SL_FLAT) && longer <= 1;
}

static int check_weight(const struct sl_model *model, const struct place *at, const struct sl_weight *row,
			const struct sl_bound *bound, struct sl_error *err)
{
	const struct sl_tensor *t = sl_bound_tensor(model, bound, 0);
	unsigned least = row->in == SL_NO_AXIS ? 1 : 2;
	bool exact = least == 1 || !(row->role == SL_WHOLE || (row->flags & (SL_STACKED | SL_UNFUSED)));

	int ret = check_experts(model, at->stack, row, bound, t, err);
	if (ret)
		return ret;
	if (!is_flat(row, t) && (t->n_dims < least || (exact && t->n_dims > least)))
		return sl_fail(err, EINVAL, "%s: tensor '%s' has %u dimensions, expected %u",
			       model->shards.shards[t->shard].name, SL_ESC(t->name), t->n_dims, least);
	if (bound->storage == &sl_plain && row->as != SL_IN_OWN && row->as != SL_IN_I32 && !sl_dtype_is_plain(t->dtype))
		return sl_fail(err, EINVAL,
			       "%s: tensor '%s' is %s, but no quantisation that config.json names would explain it",
			       model->shards.shards[t->shard].name, SL_ESC(t->name), sl_dtypes[t->dtype].name);
	struct sl_matrix m = sl_logical_matrix(model, row, bound);
	ret = check_axis(model, at, t, "rows", row->out, m.rows, err);
	if (!ret && row->in != SL_NO_AXIS)
		ret = check_axis(model, at, t, "columns", row->in, m.cols, err);
	for (unsigned i = 1; !ret && i < bound->storage->n_components; i++)
		ret = check_component(model, row, bound, i, err);
	return ret;
}

static int check_bias(const struct sl_model *model, const struct sl_weight *row, const struct sl_bound *bound,
		      struct sl_error *err)
{
	const struct sl_tensor *bias = sl_bound_bias(model, bound);
	uint64_t rows = bound->storage ? sl_logical_matrix(model, row, bound).rows : 0;

	if (bias->n_dims == 1 && bias->shape[0] == rows && sl_dtype_is_plain(bias->dtype))
		return 0;
	return sl_fail(err, EINVAL, "%s: tensor '%s' has %llu elements of %s, its weight %llu rows",
		       model->shards.shards[bias->shard].name, SL_ESC(bias->name), (unsigned long long)elements(bias),
		       sl_dtypes[bias->dtype].name, (unsigned long long)rows);
}

static int check_module(const struct sl_model *model, const struct place *at, const struct sl_weight *row,
			const struct sl_bound *bound, struct sl_error *err)
{
	int ret = 0;

	if (row->flags & (SL_UNLOADED | SL_INDICES))
		return 0;
	if (bound->storage)
		ret = check_weight(model, at, row, bound, err);
	if (!ret && bound->bias)
		ret = check_bias(model, row, bound, err);
	return ret;
}

static bool is_by_head_dim(enum sl_dim dim)
{
	return dim == SL_Q || dim == SL_KV || dim == SL_QKV || dim == SL_HEAD_DIM;
}

/* Does a row of this part divide by head_dim? */
static bool needs_head_dim(const struct sl_arch *arch, enum sl_part part)
{
	for (unsigned s = 0; s < arch->n_stacks; s++) {
		const struct sl_stack *stack = &arch->stacks[s];
		for (unsigned r = 0; stack->part == part && r < stack->n_weights; r++) {
			if (is_by_head_dim(stack->weights[r].out) || is_by_head_dim(stack->weights[r].in))
				return true;
		}
	}
	return false;
}

/* head_dim of a part that has none in the configuration: from the rows of the first query projection, else hidden over heads. */
static int find_head_dim(struct sl_model *model, enum sl_part part, struct sl_error *err)
{
	struct sl_dims *d = &model->config.dims[part];

	if (!needs_head_dim(model->arch, part))
		return 0;
	if (!d->heads && d->layers)
		return sl_fail(err, EINVAL, "config.json: the number of %s heads is absent",
			       part == SL_TEXT ? "attention" : "vision");
	for (unsigned s = 0; !d->head_dim && s < model->arch->n_stacks; s++) {
		const struct sl_stack *stack = &model->arch->stacks[s];
		for (unsigned r = 0; stack->part == part && d->heads && r < stack->n_weights; r++) {
			const struct sl_weight *row = &stack->weights[r];
			uint64_t parts = row->out == SL_Q     ? d->heads
					 : row->out == SL_QKV ? d->heads + 2 * d->kv_heads
							      : 0;
			const struct sl_bound *bound = sl_bound_at(model, s, 0, r, 0);
			if (bound->storage && parts && sl_logical_matrix(model, row, bound).rows % parts == 0)
				d->head_dim = sl_logical_matrix(model, row, bound).rows / parts;
		}
	}
	if (!d->head_dim && d->heads && d->hidden % d->heads == 0)
		d->head_dim = d->hidden / d->heads;
	if (!d->head_dim && d->heads)
		return sl_fail(err, EINVAL,
			       "config.json: no head_dim, and hidden size %llu does not divide by %llu heads",
			       (unsigned long long)d->hidden, (unsigned long long)d->heads);
	return 0;
}

/* Experts are held as one tensor each of their matrices: all must be stored as the first is. */
static int check_alike(const struct sl_model *model, const struct sl_weight *row, const struct sl_bound *first,
		       const struct sl_bound *other, struct sl_error *err)
{
	const struct sl_tensor *a = sl_bound_tensor(model, first, 0), *b = sl_bound_tensor(model, other, 0);

	if (first->storage != other->storage)
		return sl_fail(err, EINVAL, "%s: tensor '%s' is stored as %s, but that of the first expert as %s",
			       model->shards.shards[b->shard].name, SL_ESC(b->name), other->storage->name,
			       first->storage->name);
	for (unsigned i = 1; i < first->storage->n_components; i++) {
		if (first->storage->components[i].need != SL_DROPPED && !first->tensors[i] != !other->tensors[i])
			return sl_fail(err, EINVAL, "%s: only one of '%s' and that of the first expert has a '%s'",
				       model->shards.shards[b->shard].name, SL_ESC(b->name),
				       first->storage->components[i].stored);
	}
	struct sl_matrix m = sl_logical_matrix(model, row, first), n = sl_logical_matrix(model, row, other);
	if (m.rows == n.rows && m.cols == n.cols && a->dtype == b->dtype)
		return 0;
	return sl_fail(err, EINVAL, "%s: tensor '%s' is %s [%llu, %llu], but that of the first expert %s [%llu, %llu]",
		       model->shards.shards[b->shard].name, SL_ESC(b->name), sl_dtypes[b->dtype].name,
		       (unsigned long long)n.rows, (unsigned long long)n.cols, sl_dtypes[a->dtype].name,
		       (unsigned long long)m.rows, (unsigned long long)m.cols);
}

/* Are two experts stored in the same way, down to each tensor's dtype and shape? */
static bool is_same(const struct sl_model *model, const struct sl_bound *a, const struct sl_bound *b)
{
	if (a->storage != b->storage || !a->bias != !b->bias)
		return false;
	for (unsigned i = 0; a->storage && i < a->storage->n_components; i++) {
		const struct sl_tensor *x = sl_bound_tensor(model, a, i), *y = sl_bound_tensor(model, b, i);
		if (!x != !y || (x && !same_shape(x, y)))
			return false;
	}
	return true;
}

static int check_layer(const struct sl_model *model, unsigned s, uint64_t layer, struct sl_error *err)
{
	const struct sl_stack *stack = &model->arch->stacks[s];
	const struct sl_binding *b = &model->bound[s];
	struct place at = { stack, layer };
	int ret = 0;

	for (unsigned r = 0; !ret && r < stack->n_weights; r++) {
		const struct sl_bound *first = sl_bound_at(model, s, layer, r, 0);
		bool *alike = &b->alike[layer * stack->n_weights + r];
		uint32_t n = *alike ? 1 : b->row_start[r + 1] - b->row_start[r];
		*alike = true;
		for (uint32_t m = 0; !ret && m < n; m++) {
			ret = check_module(model, &at, &stack->weights[r], &first[m], err);
			if (!ret && m > 0 && first->storage && first[m].storage)
				ret = check_alike(model, &stack->weights[r], first, &first[m], err);
			*alike = *alike && is_same(model, first, &first[m]);
		}
	}
	return ret;
}

static int check_shapes(struct sl_model *model, struct sl_error *err)
{
	const struct sl_arch *arch = model->arch;

	for (int part = 0; part < SL_N_PARTS; part++) {
		int ret = find_head_dim(model, (enum sl_part)part, err);
		if (ret)
			return ret;
	}
	for (unsigned s = 0; s < arch->n_stacks; s++) {
		uint64_t layers = sl_stack_layers(model, &arch->stacks[s]);
		for (uint64_t l = 0; l < layers; l++) {
			int ret = check_layer(model, s, l, err);
			if (ret)
				return ret;
		}
	}
	return 0;
}

/* ---- what was not asked for ---- */

static bool ends_with(const char *name, const char *tail)
{
	size_t n = strlen(name), t = strlen(tail);

	return n >= t && strcmp(name + n - t, tail) == 0;
}

/* Buffers that checkpoints carry and every engine computes itself (vLLM: AutoWeightsLoader's skip list). */
static bool is_computed_buffer(const char *name)
{
	static const char *const tails[] = { "rotary_emb.inv_freq",	"rotary_pos_emb.inv_freq",
					     "rotary_emb.cos_cached",	"rotary_emb.sin_cached",
					     "embeddings.position_ids", "attn.masked_bias" };

	for (size_t i = 0; i < SL_COUNT(tails); i++) {
		if (ends_with(name, tails[i]))
			return true;
	}
	return false;
}

/* Exporters write all-zero biases for layers that have none; one that is not zero changes the model. 1, 0 or -errno. */
static int is_zero_bias(const struct sl_model *model, const struct sl_tensor *tensor, struct sl_error *err)
{
	unsigned char block[4096];

	if (!ends_with(tensor->name, ".bias"))
		return 0;
	for (uint64_t done = 0; done < tensor->len;) {
		size_t now = tensor->len - done < sizeof(block) ? tensor->len - done : sizeof(block);
		int ret = sl_shard_read(&model->shards.shards[tensor->shard], block, tensor->off + done, now, err);
		if (ret)
			return ret;
		for (size_t i = 0; i < now; i++) {
			if (block[i])
				return 0;
		}
		done += now;
	}
	return 1;
}

/* A sentence for tensors that no row claims. The usual reason is a layer beyond the configured ones. */
static int refuse_unexpected(const struct sl_model *model, const struct list *list, struct sl_error *err)
{
	char rest[40];

	return sl_fail(err, EINVAL, "%llu tensor%s unexpected in %s with %llu layers: %s%s",
		       (unsigned long long)list->n, list->n > 1 ? "s are" : " is", model->config.architecture,
		       (unsigned long long)model->config.dims[SL_TEXT].layers, list->text,
		       list_rest(list, rest, sizeof(rest)));
}

/* Is this the tensor of a draft (next-n, MTP) layer: under a prefix that the family names, or of a layer beyond the last? */
static bool is_draft(const struct binder *b, const char *name)
{
	const struct sl_model *model = b->model;
	char prefix[SL_MODULE_NAME_MAX], canonical[SL_MODULE_NAME_MAX];

	for (const char *const *skip = model->arch->skipped; skip && *skip; skip++) {
		if (strncmp(name, *skip, strlen(*skip)) == 0)
			return true;
	}
	for (unsigned s = 0; (model->arch->flags & SL_NEXT_N) && s < model->arch->n_stacks; s++) {
		const struct sl_stack *stack = &model->arch->stacks[s];
		const char *mark = strstr(stack->name, "%u");
		if (!stack->pipelined || !mark)
			continue;
		sl_stack_prefix(stack->name, 0, canonical);
		canonical[mark - stack->name] = '\0';
		spell(b->model, canonical, prefix);
		size_t len = strlen(prefix);
		if (strncmp(name, prefix, len) == 0 && strtoull(name + len, NULL, 10) >= sl_stack_layers(model, stack))
			return true;
	}
	return false;
}

/* What becomes of a tensor that no row claims. */
static int account_one(struct binder *b, uint32_t i, struct list *unexpected, uint64_t *n_zero, struct sl_error *err)
{
	struct sl_model *model = b->model;
	const struct sl_tensor *tensor = &model->shards.tensors[i];

	if (is_computed_buffer(tensor->name)) {
		model->n_ignored++;
		return 0;
	}
	if (is_draft(b, tensor->name)) {
		model->drafts[model->n_drafts++] = i;
		return 0;
	}
	int zero = is_zero_bias(model, tensor, err);
	if (zero < 0)
		return zero;
	if (zero)
		++*n_zero;
	else
		list_add(unexpected, tensor->name);
	return 0;
}

static uint32_t count_unclaimed(const struct binder *b)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < b->model->shards.n_tensors; i++)
		n += !b->claimed[i];
	return n;
}

static int account(struct binder *b, struct sl_error *err)
{
	struct sl_model *model = b->model;
	struct list unexpected = { 0 };
	uint64_t n_zero = 0;

	model->drafts = sl_arena_array(&model->arena, count_unclaimed(b), sizeof(*model->drafts));
	if (!model->drafts)
		return sl_fail(err, ENOMEM, "out of memory");
	for (uint32_t i = 0; i < model->shards.n_tensors; i++) {
		int ret = b->claimed[i] ? 0 : account_one(b, i, &unexpected, &n_zero, err);
		if (ret)
			return ret;
	}
	if (unexpected.n)
		return refuse_unexpected(model, &unexpected, err);
	model->n_ignored += n_zero;
	if (n_zero)
		sl_note(&model->notes, &model->arena, "%llu all-zero biases, which %s does not have, are left out",
			(unsigned long long)n_zero, model->config.architecture);
	if (model->n_drafts)
		sl_note(&model->notes, &model->arena,
			"%u tensors of next-n (MTP) layers are not part of the main model's view", model->n_drafts);
	return 0;
}

int sl_bind(struct sl_model *model, struct sl_error *err)
{
	struct binder b = { .model = model };

	int ret = choose_spelling(&b, err);
	if (ret)
		return ret;
	b.claimed = calloc(model->shards.n_tensors ? model->shards.n_tensors : 1, 1);
	if (!b.claimed)
		return sl_fail(err, ENOMEM, "out of memory");
	ret = bind_stacks(&b, err);
	if (!ret)
		ret = check_quantised(&b, err);
	if (!ret)
		ret = check_shapes(model, err);
	if (!ret)
		ret = account(&b, err);
	free(b.claimed);
	free(b.near);
	return ret;
}
