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
	const char *wrapper;                /* in front of every stored name: "", "module.", … */
	const struct sl_spelling *spelling; /* NULL: the stacks' own */
	unsigned char *claimed;             /* per tensor */
	struct list missing;
};

static void list_add(struct list *list, const char *name)
{
	char shown[200];

	if (list->n++ < LISTED)
		list->len += (size_t)snprintf(list->text + list->len, sizeof(list->text) - list->len, "%s'%s'", list->n > 1 ? ", " : "",
					      sl_escape(shown, sizeof(shown), name, strlen(name)));
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

size_t sl_stack_prefix(const char *name, uint64_t layer, char *out)
{
	const char *mark = strstr(name, "%u");
	char digits[20];
	size_t at = sizeof(digits), len;

	if (!mark)
		return sl_name_append(out, 0, name);
	do
		digits[--at] = (char)('0' + layer % 10);
	while (layer /= 10);
	len = append(out, 0, name, (size_t)(mark - name));
	len = append(out, len, digits + at, sizeof(digits) - at);
	return sl_name_append(out, len, mark + 2);
}

/* The stored name for a canonical one: wrapper, then the spelling's prefix for the canonical prefix. */
static void spell(const struct binder *b, const char *canonical, char *out)
{
	const char *front = "";

	for (size_t i = 0; b->spelling && i < SL_COUNT(b->spelling->prefixes) && b->spelling->prefixes[i].canonical; i++) {
		size_t len = strlen(b->spelling->prefixes[i].canonical);
		if (strncmp(canonical, b->spelling->prefixes[i].canonical, len) == 0) {
			front = b->spelling->prefixes[i].stored;
			canonical += len;
			break;
		}
	}
	size_t len = sl_name_append(out, 0, b->wrapper);
	len = sl_name_append(out, len, front);
	sl_name_append(out, len, canonical);
}

static void canonical_name(const struct sl_stack *stack, uint64_t layer, const struct sl_weight *row, const char *suffix,
			   char *out)
{
	size_t len = sl_stack_prefix(stack->name, layer, out);

	len = sl_name_append(out, len, row->name);
	sl_name_append(out, len, suffix);
}

static const struct sl_tensor *look_up(const struct binder *b, const struct sl_stack *stack, uint64_t layer,
				       const struct sl_weight *row, const char *suffix, char *stored)
{
	char canonical[SL_MODULE_NAME_MAX];

	canonical_name(stack, layer, row, suffix, canonical);
	spell(b, canonical, stored);
	return sl_shards_find(&b->model->shards, stored);
}

static const char *weight_suffix(const struct sl_weight *row)
{
	return row->flags & SL_BARE ? "" : ".weight";
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

	canonical_name(stack, 0, row, ".weight", expected);
	size_t tail_len = (size_t)snprintf(tail, sizeof(tail), "%s.weight", row->name);
	for (uint32_t i = 0; i < shards->n_tensors; i++) {
		const char *name = shards->tensors[i].name;
		size_t len = strlen(name);
		if (len > tail_len && strcmp(name + len - tail_len, tail) == 0)
			return sl_fail(err, EINVAL, "prefix mismatch: the checkpoint has '%s', the architecture %s names it '%s'",
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
	char stored[SL_MODULE_NAME_MAX];

	for (size_t w = 0; w < SL_COUNT(wrappers); w++) {
		b->wrapper = wrappers[w];
		for (unsigned s = 0; s <= arch->n_spellings; s++) {
			b->spelling = s ? &arch->spellings[s - 1] : NULL;
			if (look_up(b, stack, 0, row, ".weight", stored))
				return 0;
		}
	}
	return no_spelling(b, err);
}

/* ---- one row ---- */

static void claim(struct binder *b, const struct sl_tensor *tensor)
{
	b->claimed[tensor - b->model->shards.tensors] = 1;
}

static bool may_be_absent(const struct sl_model *model, const struct sl_weight *row)
{
	if (row->flags & SL_IS_HEAD)
		return model->tied || (model->arch->flags & SL_NO_HEAD);
	return row->flags & (SL_OPTIONAL | SL_UNLOADED | SL_INDICES);
}

static void bind_row(struct binder *b, const struct sl_stack *stack, uint64_t layer, const struct sl_weight *row,
		     struct sl_bound *bound)
{
	const struct sl_model *model = b->model;
	char stored[SL_MODULE_NAME_MAX];

	if (row->when && !row->when(&model->config, stack->part))
		return;
	bound->weight = look_up(b, stack, layer, row, weight_suffix(row), stored);
	if (bound->weight)
		claim(b, bound->weight);
	else if (!may_be_absent(model, row))
		list_add(&b->missing, stored);
	if (!row->bias || !row->bias(&model->config, stack->part))
		return;
	bound->bias = look_up(b, stack, layer, row, ".bias", stored);
	if (bound->bias)
		claim(b, bound->bias);
	else if (!(row->flags & (SL_OPTIONAL | SL_UNLOADED)))
		list_add(&b->missing, stored);
}

static int bind_stacks(struct binder *b, struct sl_error *err)
{
	struct sl_model *model = b->model;
	const struct sl_arch *arch = model->arch;

	for (unsigned s = 0; s < arch->n_stacks; s++) {
		const struct sl_stack *stack = &arch->stacks[s];
		uint64_t layers = sl_stack_layers(model, stack), n;
		if (layers > model->shards.n_tensors)
			return sl_fail(err, EINVAL, "config.json: %llu layers, but the checkpoint has %u tensors",
				       (unsigned long long)layers, model->shards.n_tensors);
		n = layers * stack->n_weights;
		model->bound[s] = sl_arena_array(&model->arena, n, sizeof(struct sl_bound));
		if (!model->bound[s])
			return sl_fail(err, ENOMEM, "out of memory");
		for (uint64_t i = 0; i < n; i++)
			bind_row(b, stack, i / stack->n_weights, &stack->weights[i % stack->n_weights], &model->bound[s][i]);
	}
	if (b->missing.n) {
		char rest[40];
		return sl_fail(err, EINVAL, "%llu tensor%s missing that %s needs: %s%s", (unsigned long long)b->missing.n,
			       b->missing.n > 1 ? "s are" : " is", model->config.architecture, b->missing.text,
			       list_rest(&b->missing, rest, sizeof(rest)));
	}
	return 0;
}

/* ---- shapes ---- */

struct sl_matrix sl_matrix_of(const struct sl_tensor *tensor, const struct sl_weight *row)
{
	struct sl_matrix m = { tensor->n_dims ? tensor->shape[0] : 1, 1 };

	for (unsigned i = 1; i < tensor->n_dims; i++)
		m.in *= tensor->shape[i];
	if ((row->flags & SL_CONV1D) && tensor->n_dims > 1)
		return (struct sl_matrix){ m.in, m.out };
	return m;
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
	const uint64_t sizes[SL_N_DIMS] = {
		[SL_ANY] = 0,
		[SL_HIDDEN] = d->hidden,
		[SL_Q] = q,
		[SL_KV] = kv,
		[SL_QKV] = kv ? q + 2 * kv : 0,
		[SL_HEAD_DIM] = d->head_dim,
		[SL_INTER] = d->inter,
		[SL_GATE_UP] = 2 * d->inter,
		[SL_VOCAB] = d->vocab,
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
		[SL_NO_AXIS] = "size",
	};

	return titles[dim];
}

/* Where kv heads differ between layers, the rows say how many there are: whole ones. */
static int check_kv_rows(const struct sl_model *model, enum sl_part part, const struct sl_tensor *tensor, enum sl_dim dim,
			 uint64_t size, struct sl_error *err)
{
	const struct sl_dims *d = &model->config.dims[part];
	uint64_t q = dim == SL_QKV ? d->heads * d->head_dim : 0, unit = dim == SL_QKV ? 2 * d->head_dim : d->head_dim;

	if (size > q && (size - q) % unit == 0)
		return 0;
	return sl_fail(err, EINVAL, "%s: tensor '%s': %llu rows are no whole kv heads of head_dim %llu",
		       model->shards.shards[tensor->shard].name, SL_ESC(tensor->name), (unsigned long long)size,
		       (unsigned long long)d->head_dim);
}

static int check_axis(const struct sl_model *model, enum sl_part part, const struct sl_tensor *tensor, const char *axis,
		      enum sl_dim dim, uint64_t size, struct sl_error *err)
{
	uint64_t want = expected(model, part, dim);

	if (!want && (dim == SL_KV || dim == SL_QKV))
		return check_kv_rows(model, part, tensor, dim, size, err);
	if (want && size != want)
		return sl_fail(err, EINVAL, "%s: tensor '%s': %llu %s, but config.json makes them %llu (%s)",
			       model->shards.shards[tensor->shard].name, SL_ESC(tensor->name), (unsigned long long)size, axis,
			       (unsigned long long)want, dim_title(dim));
	return 0;
}

static int check_dtype(const struct sl_model *model, const struct sl_tensor *tensor, struct sl_error *err)
{
	if (sl_can_convert(tensor->dtype, SL_F32))
		return 0;
	return sl_fail(err, EINVAL, "%s: tensor '%s' is %s, but config.json has no quantization_config that would explain it",
		       model->shards.shards[tensor->shard].name, SL_ESC(tensor->name), sl_dtypes[tensor->dtype].name);
}

static int check_row(const struct sl_model *model, enum sl_part part, const struct sl_weight *row, const struct sl_bound *bound,
		     struct sl_error *err)
{
	const struct sl_tensor *t = bound->weight;

	if (t && !(row->flags & (SL_UNLOADED | SL_INDICES))) {
		struct sl_matrix m = sl_matrix_of(t, row);
		unsigned least = row->in == SL_NO_AXIS ? 1 : 2;
		if (t->n_dims < least || (t->n_dims > least && (least == 1 || row->role != SL_WHOLE)))
			return sl_fail(err, EINVAL, "%s: tensor '%s' has %u dimensions, expected %u",
				       model->shards.shards[t->shard].name, SL_ESC(t->name), t->n_dims, least);
		int ret = check_axis(model, part, t, "rows", row->out, m.out, err);
		if (!ret && row->in != SL_NO_AXIS)
			ret = check_axis(model, part, t, "columns", row->in, m.in, err);
		if (!ret)
			ret = check_dtype(model, t, err);
		if (ret)
			return ret;
	}
	if (bound->bias && !(row->flags & SL_UNLOADED)) {
		if (bound->bias->n_dims != 1 || (t && bound->bias->shape[0] != sl_matrix_of(t, row).out))
			return sl_fail(err, EINVAL, "%s: tensor '%s' has %llu elements, its weight %llu rows",
				       model->shards.shards[bound->bias->shard].name, SL_ESC(bound->bias->name),
				       (unsigned long long)(bound->bias->n_dims ? bound->bias->shape[0] : 1),
				       (unsigned long long)(t ? sl_matrix_of(t, row).out : 0));
		return check_dtype(model, bound->bias, err);
	}
	return 0;
}

/* head_dim of a part that has none in the configuration: from the rows of the first query projection, else hidden over heads. */
static int find_head_dim(struct sl_model *model, enum sl_part part, struct sl_error *err)
{
	struct sl_dims *d = &model->config.dims[part];

	for (unsigned s = 0; !d->head_dim && s < model->arch->n_stacks; s++) {
		const struct sl_stack *stack = &model->arch->stacks[s];
		for (unsigned r = 0; stack->part == part && d->heads && r < stack->n_weights; r++) {
			const struct sl_weight *row = &stack->weights[r];
			const struct sl_tensor *t = model->bound[s][r].weight;
			uint64_t parts = row->out == SL_Q ? d->heads : row->out == SL_QKV ? d->heads + 2 * d->kv_heads : 0;
			if (t && parts && sl_matrix_of(t, row).out % parts == 0)
				d->head_dim = sl_matrix_of(t, row).out / parts;
		}
	}
	if (!d->head_dim && d->heads && d->hidden % d->heads == 0)
		d->head_dim = d->hidden / d->heads;
	if (!d->head_dim && d->heads)
		return sl_fail(err, EINVAL, "config.json: no head_dim, and hidden size %llu does not divide by %llu heads",
			       (unsigned long long)d->hidden, (unsigned long long)d->heads);
	return 0;
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
		const struct sl_stack *stack = &arch->stacks[s];
		uint64_t n = sl_stack_layers(model, stack) * stack->n_weights;
		for (uint64_t i = 0; i < n; i++) {
			int ret = check_row(model, stack->part, &stack->weights[i % stack->n_weights], &model->bound[s][i], err);
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
	static const char *const tails[] = { "rotary_emb.inv_freq", "rotary_pos_emb.inv_freq", "rotary_emb.cos_cached",
					     "rotary_emb.sin_cached", "embeddings.position_ids", "attn.masked_bias" };

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

	return sl_fail(err, EINVAL, "%llu tensor%s unexpected in %s with %llu layers: %s%s", (unsigned long long)list->n,
		       list->n > 1 ? "s are" : " is", model->config.architecture,
		       (unsigned long long)model->config.dims[SL_TEXT].layers, list->text, list_rest(list, rest, sizeof(rest)));
}

static int account(struct binder *b, struct sl_error *err)
{
	struct sl_model *model = b->model;
	struct list unexpected = { 0 };
	uint64_t n_zero = 0;

	for (uint32_t i = 0; i < model->shards.n_tensors; i++) {
		const struct sl_tensor *tensor = &model->shards.tensors[i];
		if (b->claimed[i])
			continue;
		if (is_computed_buffer(tensor->name)) {
			model->n_ignored++;
			continue;
		}
		int zero = is_zero_bias(model, tensor, err);
		if (zero < 0)
			return zero;
		if (zero)
			n_zero++;
		else
			list_add(&unexpected, tensor->name);
	}
	if (unexpected.n)
		return refuse_unexpected(model, &unexpected, err);
	model->n_ignored += n_zero;
	if (n_zero)
		sl_note(&model->notes, &model->arena, "%llu all-zero biases, which %s does not have, are left out",
			(unsigned long long)n_zero, model->config.architecture);
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
		ret = check_shapes(model, err);
	if (!ret)
		ret = account(&b, err);
	free(b.claimed);
	return ret;
}
