/*
 * config.c - reading config.json, and serving it with a few values changed: edits are splices of the original text, so
 * that what rankfs does not understand stays as it was.
 */
#include "slicer/config.h"

#include "slicer/dtype.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CONFIG_DEPTH = 64 };

static int read_text(struct sl_config *config, int dirfd, struct sl_arena *arena, struct sl_error *err)
{
	struct stat st;
	int fd = openat(dirfd, "config.json", O_RDONLY | O_CLOEXEC | O_NONBLOCK);

	if (fd < 0)
		return sl_fail(err, errno == ENOENT ? EINVAL : errno, "config.json: %s",
			       errno == ENOENT ? "there is none; a checkpoint needs the model's own" : strerror(errno));
	if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size > SL_CONFIG_MAX) {
		close(fd);
		return sl_fail(err, EINVAL, "config.json: no regular file of at most %u bytes", SL_CONFIG_MAX);
	}
	config->text = sl_arena_alloc(arena, (size_t)st.st_size + 1);
	while (config->text && config->len < (size_t)st.st_size) {
		ssize_t n = read(fd, config->text + config->len, (size_t)st.st_size - config->len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		config->len += (size_t)n;
	}
	close(fd);
	if (!config->text)
		return sl_fail(err, ENOMEM, "config.json: out of memory");
	if (config->len < (size_t)st.st_size)
		return sl_fail(err, EIO, "config.json: %zu of %lld bytes could be read", config->len,
			       (long long)st.st_size);
	return 0;
}

/* The value of a member; of one that is there twice the last, as for Python's json, which every engine reads with. */
static uint32_t member(const struct sl_json *json, uint32_t obj, const char *key)
{
	uint32_t found = 0, at = sl_json_first(json, obj);

	for (uint32_t i = 0; i < json->tokens[obj].n; i++, at = sl_json_next(json, at)) {
		if (sl_json_equal(json, at, key))
			found = at + 1;
	}
	return found;
}

static uint32_t first_section(const struct sl_json *json, const char *const *names)
{
	for (; *names; names++) {
		uint32_t at = member(json, 0, *names);
		if (at && json->tokens[at].type == SL_JSON_OBJECT)
			return at;
	}
	return 0;
}

/* A string value in the arena; NULL when it is none. */
static int string_value(const char **out, const struct sl_json *json, uint32_t at, struct sl_arena *arena,
			struct sl_error *err)
{
	size_t len;

	*out = NULL;
	if (!at || json->tokens[at].type != SL_JSON_STRING)
		return 0;
	*out = sl_json_string(json, at, arena, &len);
	return *out ? 0 : sl_fail(err, ENOMEM, "config.json: out of memory");
}

/* The names that the family is known by. */
static int read_names(struct sl_config *config, struct sl_arena *arena, struct sl_error *err)
{
	const struct sl_json *json = &config->json;
	uint32_t list = member(json, 0, "architectures");
	bool any = list && json->tokens[list].type == SL_JSON_ARRAY && json->tokens[list].n > 0;

	int ret = string_value(&config->architecture, json, any ? list + 1 : 0, arena, err);
	return ret ? ret : string_value(&config->model_type, json, member(json, 0, "model_type"), arena, err);
}

int sl_config_open(struct sl_config *config, int dirfd, struct sl_arena *arena, struct sl_error *err)
{
	static const char *const text[] = { "text_config", "language_config", "llm_config", NULL };
	static const char *const vision[] = { "vision_config", NULL };
	struct sl_json *json = &config->json;

	*config = (struct sl_config){ 0 };
	int ret = read_text(config, dirfd, arena, err);
	if (ret)
		return ret;
	if (config->len >= 3 && memcmp(config->text, "\xEF\xBB\xBF", 3) == 0) {
		config->text += 3;
		config->len -= 3;
	}
	ret = sl_json_parse(json, config->text, config->len, CONFIG_DEPTH, err);
	if (ret)
		return sl_error_prefix(err, "config.json");
	if (json->tokens[0].type != SL_JSON_OBJECT) {
		sl_json_release(json);
		return sl_fail(err, EINVAL, "config.json: no JSON object");
	}
	config->sections[SL_TEXT] = first_section(json, text);
	config->sections[SL_VISION] = first_section(json, vision);
	ret = read_names(config, arena, err);
	if (ret)
		sl_json_release(json);
	return ret;
}

void sl_config_close(struct sl_config *config)
{
	sl_json_release(&config->json);
}

/* The value of "key", or of "object.key", of `len` bytes; 0: none. */
static uint32_t find_key(const struct sl_json *json, uint32_t obj, const char *path, size_t len)
{
	const char *dot = memchr(path, '.', len);
	size_t n = dot ? (size_t)(dot - path) : len;
	char key[64];

	if (n >= sizeof(key))
		return 0;
	memcpy(key, path, n);
	key[n] = '\0';
	uint32_t value = member(json, obj, key);
	if (!dot || !value)
		return value;
	return json->tokens[value].type == SL_JSON_OBJECT ? find_key(json, value, dot + 1, len - n - 1) : 0;
}

/* The value of the first of `keys` that object `obj` has, and that is null or is not, as asked; 0: none. */
static uint32_t find_value(const struct sl_json *json, uint32_t obj, const char *keys, bool null)
{
	for (const char *at = keys; *at;) {
		size_t len = strcspn(at, "|");
		uint32_t value = find_key(json, obj, at, len);
		if (value && (json->tokens[value].type == SL_JSON_NULL) == null)
			return value;
		at += len + (at[len] == '|');
	}
	return 0;
}

static uint32_t find_in(const struct sl_json *json, uint32_t obj, const char *keys)
{
	return find_value(json, obj, keys, false);
}

uint32_t sl_config_find(const struct sl_config *config, enum sl_part part, const char *keys)
{
	uint32_t section = config->sections[part], value = 0;

	if (section)
		value = find_in(&config->json, section, keys);
	if (!value && part == SL_TEXT)
		value = find_in(&config->json, 0, keys);
	return value;
}

int sl_config_u64(const struct sl_config *config, enum sl_part part, const char *keys, uint64_t *value,
		  struct sl_error *err)
{
	uint32_t at = sl_config_find(config, part, keys);

	if (!at)
		return -ENOENT;
	if (config->json.tokens[at].type != SL_JSON_NUMBER || sl_json_u64(&config->json, at, value))
		return sl_fail(err, EINVAL, "config.json: %.*s is no whole number", (int)strcspn(keys, "|"), keys);
	return 0;
}

bool sl_config_bool(const struct sl_config *config, enum sl_part part, const char *keys, bool fallback)
{
	uint32_t at = sl_config_find(config, part, keys);
	uint8_t type = at ? config->json.tokens[at].type : SL_JSON_NULL;

	return type == SL_JSON_TRUE || (type != SL_JSON_FALSE && fallback);
}

static double number_at(const struct sl_config *config, uint32_t at, double fallback)
{
	bool is_number = at && config->json.tokens[at].type == SL_JSON_NUMBER;

	return is_number ? strtod(config->text + config->json.tokens[at].start, NULL) : fallback;
}

double sl_config_double(const struct sl_config *config, enum sl_part part, const char *keys, double fallback)
{
	return number_at(config, sl_config_find(config, part, keys), fallback);
}

uint32_t sl_config_rope(const struct sl_config *config)
{
	uint32_t at = sl_config_find(config, SL_TEXT, "rope_scaling|rope_parameters");

	return at && config->json.tokens[at].type == SL_JSON_OBJECT ? at : 0;
}

double sl_config_rope_number(const struct sl_config *config, const char *key, double fallback)
{
	uint32_t object = sl_config_rope(config);

	return object ? number_at(config, sl_json_member(&config->json, object, key), fallback) : fallback;
}

bool sl_config_rope_is(const struct sl_config *config, const char *type)
{
	uint32_t object = sl_config_rope(config), at = 0;

	if (object)
		at = sl_json_member(&config->json, object, "rope_type");
	if (object && !at)
		at = sl_json_member(&config->json, object, "type");
	return at ? config->json.tokens[at].type == SL_JSON_STRING && sl_json_equal(&config->json, at, type)
		  : strcmp(type, "default") == 0;
}

double sl_config_rope_theta(const struct sl_config *config, double fallback)
{
	return sl_config_double(config, SL_TEXT, "rope_theta", sl_config_rope_number(config, "rope_theta", fallback));
}

uint32_t sl_config_element(const struct sl_config *config, enum sl_part part, const char *keys, uint64_t i)
{
	const struct sl_json *json = &config->json;
	uint32_t list = sl_config_find(config, part, keys), at = list + 1;

	if (!list || json->tokens[list].type != SL_JSON_ARRAY || i >= json->tokens[list].n)
		return 0;
	while (i-- > 0)
		at = sl_json_next(json, at);
	return at;
}

bool sl_config_lists(const struct sl_config *config, enum sl_part part, const char *keys, uint64_t number)
{
	const struct sl_json *json = &config->json;
	uint32_t list = sl_config_find(config, part, keys);
	uint64_t value;

	if (!list || json->tokens[list].type != SL_JSON_ARRAY)
		return false;
	for (uint32_t i = 0, at = list + 1; i < json->tokens[list].n; i++, at = sl_json_next(json, at)) {
		if (json->tokens[at].type == SL_JSON_NUMBER && sl_json_u64(json, at, &value) == 0 && value == number)
			return true;
	}
	return false;
}

bool sl_config_is(const struct sl_config *config, enum sl_part part, const char *keys, const char *text)
{
	uint32_t at = sl_config_find(config, part, keys);

	return at && config->json.tokens[at].type == SL_JSON_STRING && sl_json_equal(&config->json, at, text);
}

/* clang-format off */
/* To add a name that some family has for a size: into the list of keys. */
static const struct {
	const char *keys;
	size_t offset; /* in struct sl_dims */
} dim_keys[] = {
	{ "num_hidden_layers|n_layer|n_layers|num_layers|depth|vt_num_hidden_layers", offsetof(struct sl_dims, layers) },
	{ "hidden_size|n_embd|d_model|vt_hidden_size",         offsetof(struct sl_dims, hidden) },
	{ "num_attention_heads|n_head|n_heads|num_heads|vt_num_attention_heads", offsetof(struct sl_dims, heads) },
	{ SL_KV_HEADS_KEYS,                                    offsetof(struct sl_dims, kv_heads) },
	{ "head_dim",                                          offsetof(struct sl_dims, head_dim) },
	{ "intermediate_size|ffn_dim|ffn_hidden_size|n_inner|vt_intermediate_size", offsetof(struct sl_dims, inter) },
	{ "vocab_size",                                        offsetof(struct sl_dims, vocab) },
	{ "num_experts|n_routed_experts|num_local_experts",    offsetof(struct sl_dims, experts) },
	{ "moe_intermediate_size",                             offsetof(struct sl_dims, moe_inter) },
	{ "linear_num_key_heads|linear_attn_config.num_heads",   offsetof(struct sl_dims, linear_k_heads) },
	{ "linear_num_value_heads|linear_attn_config.num_heads", offsetof(struct sl_dims, linear_v_heads) },
	{ "linear_key_head_dim|linear_attn_config.head_dim",   offsetof(struct sl_dims, linear_k) },
	{ "linear_value_head_dim|linear_attn_config.head_dim", offsetof(struct sl_dims, linear_v) },
	{ "num_global_key_value_heads",                        offsetof(struct sl_dims, global_kv_heads) },
	{ "global_head_dim",                                   offsetof(struct sl_dims, global_head_dim) },
	{ "sparse_attention_config.sparse_num_index_heads",    offsetof(struct sl_dims, index_heads) },
	{ "sparse_attention_config.sparse_index_dim",          offsetof(struct sl_dims, index_dim) },
	{ "o_groups",                                          offsetof(struct sl_dims, out_groups) },
	{ "first_k_dense_replace",                             offsetof(struct sl_dims, dense_layers) },
};
/* clang-format on */

/* Sizes above this are no model's; the cap keeps products of two in 64 bits. */
static const uint64_t DIM_MAX = UINT64_C(1) << 31;

static uint64_t *dim_at(struct sl_dims *dims, size_t i)
{
	return (uint64_t *)(void *)((char *)dims + dim_keys[i].offset);
}

static bool is_list(const struct sl_config *config, enum sl_part part, const char *keys)
{
	uint32_t at = sl_config_find(config, part, keys);

	return at && config->json.tokens[at].type == SL_JSON_ARRAY;
}

int sl_config_dims(struct sl_config *config, enum sl_part part, const struct sl_dims *defaults, struct sl_error *err)
{
	struct sl_dims *dims = &config->dims[part], fallback = defaults ? *defaults : (struct sl_dims){ 0 };
	bool per_layer = is_list(config, part, SL_KV_HEADS_KEYS);

	for (size_t i = 0; i < sizeof(dim_keys) / sizeof(dim_keys[0]); i++) {
		uint64_t *dim = dim_at(dims, i);
		if (per_layer && dim == &dims->kv_heads)
			continue;
		int ret = sl_config_u64(config, part, dim_keys[i].keys, dim, err);
		if (ret == -ENOENT)
			*dim = *dim_at(&fallback, i);
		else if (ret)
			return ret;
		else if ((*dim == 0 && dim != &dims->dense_layers) || *dim > DIM_MAX)
			return sl_fail(err, EINVAL, "config.json: %.*s is %llu, expected 1 to %llu",
				       (int)strcspn(dim_keys[i].keys, "|"), dim_keys[i].keys, (unsigned long long)*dim,
				       (unsigned long long)DIM_MAX);
	}
	if (!dims->kv_heads && !per_layer)
		dims->kv_heads = dims->heads;
	return 0;
}

int sl_config_dtype(const struct sl_config *config, struct sl_error *err)
{
	static const char *const sections[] = { "text_config", "vision_config", "encoder_config" };
	const struct sl_json *json = &config->json;
	uint32_t at = find_in(json, 0, "dtype|torch_dtype");

	for (size_t i = 0; !at && i < sizeof(sections) / sizeof(sections[0]); i++) {
		uint32_t section = member(json, 0, sections[i]);
		if (section && json->tokens[section].type == SL_JSON_OBJECT)
			at = find_in(json, section, "dtype|torch_dtype");
	}
	if (!at)
		return -1;
	for (int d = 0; d < SL_N_DTYPES; d++) {
		if (sl_dtypes[d].torch && json->tokens[at].type == SL_JSON_STRING &&
		    sl_json_equal(json, at, sl_dtypes[d].torch))
			return d;
	}
	char shown[64];
	return sl_fail(err, EINVAL, "config.json: torch_dtype '%s' is no dtype that a model can have",
		       sl_escape(shown, sizeof(shown), json->text + json->tokens[at].start,
				 json->tokens[at].end - json->tokens[at].start));
}

/* A piece of new text in place of bytes [start, end) of the old. */
struct splice {
	size_t start, end;
	bool comma; /* between it and what follows */
	char *text;
};

static struct splice make_splice(const struct sl_config *config, const struct sl_config_edit *edit,
				 struct sl_arena *arena)
{
	const struct sl_json *json = &config->json;
	uint32_t object = edit->object ? edit->object : edit->top ? 0 : config->sections[SL_TEXT];
	bool inside = edit->object || edit->top;
	uint32_t at = inside ? find_in(json, object, edit->keys) : sl_config_find(config, SL_TEXT, edit->keys);

	/* A null counts as absent, but a second member beside it would not be read. */
	if (!at)
		at = find_value(json, object, edit->keys, true);
	if (at) {
		const struct sl_json_token *old = &json->tokens[at];
		unsigned quote = old->type == SL_JSON_STRING;
		return (struct splice){ old->start - quote, old->end + quote, false,
					sl_arena_strdup(arena, edit->value) };
	}
	size_t start = json->tokens[object].start + 1u;
	return (struct splice){ start, start, json->tokens[object].n > 0,
				sl_arena_printf(arena, "\n  \"%.*s\": %s", (int)strcspn(edit->keys, "|"), edit->keys,
						edit->value) };
}

static int by_start(const void *a, const void *b)
{
	const struct splice *x = a, *y = b;

	return (x->start > y->start) - (x->start < y->start);
}

/* In an object that was empty the first addition needs a comma only for the second's sake. */
static char *put_splice(char *fill, const struct splice *splice, const struct splice *next)
{
	bool another = next && next->start == splice->start;

	fill = stpcpy(fill, splice->text);
	if (splice->comma || another)
		*fill++ = ',';
	return fill;
}

char *sl_config_edited(const struct sl_config *config, const struct sl_config_edit *edits, size_t n_edits,
		       struct sl_arena *arena, size_t *len)
{
	struct splice *splices = sl_arena_array(arena, n_edits, sizeof(*splices));
	size_t total = config->len, done = 0;

	if (!splices)
		return NULL;
	for (size_t i = 0; i < n_edits; i++) {
		splices[i] = make_splice(config, &edits[i], arena);
		if (!splices[i].text)
			return NULL;
		total += strlen(splices[i].text) + 1;
	}
	qsort(splices, n_edits, sizeof(*splices), by_start);
	char *out = sl_arena_alloc(arena, total + 1), *fill = out;
	if (!out)
		return NULL;
	for (size_t i = 0; i < n_edits; i++) {
		fill = (char *)mempcpy(fill, config->text + done, splices[i].start - done);
		fill = put_splice(fill, &splices[i], i + 1 < n_edits ? &splices[i + 1] : NULL);
		done = splices[i].end;
	}
	fill = (char *)mempcpy(fill, config->text + done, config->len - done);
	*len = (size_t)(fill - out);
	return out;
}
