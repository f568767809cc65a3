/*
 * options.c - the table of options, and one walk over a comma list.
 *
 * A row says what an option is called, what kind of value it takes, where that goes and how far it may reach, so that the
 * message for a bad value, the help and the parser cannot disagree. Names are shell patterns: "x-*" is a row as well.
 */
#include "fs/options.h"
#include "fs/command.h"
#include "fs/device.h"
#include "fs/slot.h"
#include "slicer/engine.h"
#include <ctype.h>
#include <errno.h>
#include <fnmatch.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum option_kind {
	NUMBER,	     /* digits, min to max */
	SIZE,	     /* the same with a suffix of 1024-based K, M, G, T */
	SIZE_OR_OFF, /* the same, or "off" for 0 */
	FORMAT,	     /* a name of formats[] */
	GPU,	     /* a name of sl_gpu_names[] */
	DEVICE,	     /* a name of devices[], or a device's number */
	MEMORY,	     /* a name of memories[] */
	ENGINE,	     /* a name of sl_engines */
	FLAG,	     /* no value: becomes 1 */
	PASS,	     /* goes to the mount as it is */
	IGNORE,	     /* means nothing here, or is another program's */
	REFUSE,	     /* known, and wrong: help says why */
};

struct option_row {
	const char *name;
	enum option_kind kind;
	size_t target; /* offset of a uint64_t in struct options, for NUMBER to FLAG */
	uint64_t min, max;
	const char *help;
};

#define OPTION_TARGET(field) offsetof(struct options, field)
#define KiB		     (UINT64_C(1) << 10)
#define MiB		     (UINT64_C(1) << 20)
#define GiB		     (UINT64_C(1) << 30)
#define TiB		     (UINT64_C(1) << 40)

/* To add an option: a row, and a field in struct options if it has a value. Rows with a value come first: their numbers
 * are bits of options.given. */
/* clang-format off */
static const struct option_row rows[] = {
	{ "tp",      NUMBER, OPTION_TARGET(tp),            1,   SL_RANKS_MAX, "show only the layout of this many ranks" },
	{ "engine",  ENGINE, OPTION_TARGET(engine),        0,   0,            "show only this engine" },
	{ "part",    SIZE,   OPTION_TARGET(part_bytes),    MiB, TiB,          "split weight files above this size (default 512M)" },
	{ "format",  FORMAT, OPTION_TARGET(format),        0,   0,            "which naming of the weights to take (default auto)" },
	{ "gpu",     GPU,    OPTION_TARGET(gpu),           0,   0,            "whose kernels' paddings experts get (default the GPU's that is here, else sm90)" },
	{ "device",  DEVICE, OPTION_TARGET(device),        0,   DEVICES_MAX - 1, "what computes transforms: bytes are the same (default cpu)" },
	{ "ra",      NUMBER, OPTION_TARGET(read_ahead_kb), 0,   1048576,      "read-ahead in KiB, 0 for the kernel's own (default 0 when files are staged, else 4096)" },
	{ "threads", NUMBER, OPTION_TARGET(threads),       1,   1024,         "threads that serve (default 2 a processor, 8 to 64)" },
	{ "stage",   SIZE_OR_OFF, OPTION_TARGET(stage_bytes), MiB, TiB,       "memory for files ahead of their readers (default a quarter of what is available)" },
	{ "nocache", FLAG, OPTION_TARGET(no_cache), 0, 0, "read all headers, whatever the cache of them has, and store nothing there" },
	{ "memory",  MEMORY, OPTION_TARGET(memory),        0,   0,            "what these files are kept in, at best (default huge, where it can be had)" },
	{ "nopassthrough", FLAG, OPTION_TARGET(no_passthrough), 0, 0, "stream all files, those of the source too, and stage none" },
	{ "allow_other", FLAG, OPTION_TARGET(allow_other), 0, 0, "let other users in (the default for root)" },
	{ "allow_root",  FLAG, OPTION_TARGET(allow_root),  0, 0, "let root in" },
	/* Kept for the mount. */
	{ "noexec",      PASS, 0, 0, 0, "nothing here can be executed" },
	{ "context",     PASS, 0, 0, 0, NULL },
	{ "fscontext",   PASS, 0, 0, 0, NULL },
	{ "defcontext",  PASS, 0, 0, 0, NULL },
	{ "rootcontext", PASS, 0, 0, 0, NULL },
	/* Always so: ro, nosuid, nodev, default_permissions. mount(8) says rw where fstab says nothing. */
	{ "ro", IGNORE, 0, 0, 0, NULL },
	{ "rw", IGNORE, 0, 0, 0, NULL },
	{ "suid", IGNORE, 0, 0, 0, NULL },
	{ "nosuid", IGNORE, 0, 0, 0, NULL },
	{ "dev", IGNORE, 0, 0, 0, NULL },
	{ "nodev", IGNORE, 0, 0, 0, NULL },
	{ "exec", IGNORE, 0, 0, 0, NULL },
	{ "default_permissions", IGNORE, 0, 0, 0, NULL },
	/* Nothing is written, so these change nothing. */
	{ "sync", IGNORE, 0, 0, 0, NULL },
	{ "async", IGNORE, 0, 0, 0, NULL },
	{ "dirsync", IGNORE, 0, 0, 0, NULL },
	{ "atime", IGNORE, 0, 0, 0, NULL },
	{ "noatime", IGNORE, 0, 0, 0, NULL },
	{ "diratime", IGNORE, 0, 0, 0, NULL },
	{ "nodiratime", IGNORE, 0, 0, 0, NULL },
	{ "relatime", IGNORE, 0, 0, 0, NULL },
	{ "norelatime", IGNORE, 0, 0, 0, NULL },
	{ "strictatime", IGNORE, 0, 0, 0, NULL },
	{ "nostrictatime", IGNORE, 0, 0, 0, NULL },
	{ "lazytime", IGNORE, 0, 0, 0, NULL },
	{ "nolazytime", IGNORE, 0, 0, 0, NULL },
	{ "iversion", IGNORE, 0, 0, 0, NULL },
	{ "noiversion", IGNORE, 0, 0, 0, NULL },
	{ "mand", IGNORE, 0, 0, 0, NULL },
	{ "nomand", IGNORE, 0, 0, 0, NULL },
	{ "symfollow", IGNORE, 0, 0, 0, NULL },
	{ "nosymfollow", IGNORE, 0, 0, 0, NULL },
	{ "silent", IGNORE, 0, 0, 0, NULL },
	{ "loud", IGNORE, 0, 0, 0, NULL },
	/* For mount(8) and systemd. */
	{ "defaults", IGNORE, 0, 0, 0, NULL },
	{ "auto", IGNORE, 0, 0, 0, NULL },
	{ "noauto", IGNORE, 0, 0, 0, NULL },
	{ "user", IGNORE, 0, 0, 0, NULL },
	{ "nouser", IGNORE, 0, 0, 0, NULL },
	{ "users", IGNORE, 0, 0, 0, NULL },
	{ "nousers", IGNORE, 0, 0, 0, NULL },
	{ "owner", IGNORE, 0, 0, 0, NULL },
	{ "noowner", IGNORE, 0, 0, 0, NULL },
	{ "group", IGNORE, 0, 0, 0, NULL },
	{ "nogroup", IGNORE, 0, 0, 0, NULL },
	{ "nofail", IGNORE, 0, 0, 0, NULL },
	{ "_netdev", IGNORE, 0, 0, 0, NULL },
	{ "comment", IGNORE, 0, 0, 0, NULL },
	{ "uhelper", IGNORE, 0, 0, 0, NULL },
	{ "x-*", IGNORE, 0, 0, 0, NULL },
	{ "X-*", IGNORE, 0, 0, 0, NULL },
	/* Known, and wrong. */
	{ "remount", REFUSE, 0, 0, 0, "a mount cannot change its options: unmount it and mount it again" },
	{ "direct_io", REFUSE, 0, 0, 0, "engines map weight files, which needs the page cache; O_DIRECT works per open file" },
	{ "auto_unmount", REFUSE, 0, 0, 0, "an engine must see an error when the daemon dies, not an empty directory" },
};
/* clang-format on */

#define N_ROWS (sizeof(rows) / sizeof(rows[0]))

static const char *const formats[] = {
	[SL_FORMAT_AUTO] = "auto",
	[SL_FORMAT_HF] = "hf",
	[SL_FORMAT_MISTRAL] = "mistral",
};

static const char *const devices[] = {
	[DEVICE_CPU] = "cpu",
	[DEVICE_AUTO] = "auto",
	[DEVICE_CUDA] = "cuda",
};

_Static_assert(sizeof(devices) / sizeof(devices[0]) == DEVICE_NUMBER, "a name for each choice");

static const char *const memories[N_SLOTS_KINDS] = {
	[SLOTS_HUGE] = "huge",
	[SLOTS_TMPFS] = "tmpfs",
	[SLOTS_MEMFD] = "memfd",
};

#define N_FORMATS (sizeof(formats) / sizeof(formats[0]))

void options_init(struct options *options)
{
	memset(options, 0, sizeof(*options));
	options->format = SL_FORMAT_AUTO;
	options->read_ahead_kb = OPTIONS_AUTO;
	options->stage_bytes = OPTIONS_AUTO;
}

static bool has_value(const struct option_row *row)
{
	return row->kind <= ENGINE;
}

static const struct option_row *find_row(const char *name)
{
	for (size_t i = 0; i < N_ROWS; i++)
		if (!fnmatch(rows[i].name, name, 0))
			return &rows[i];
	return NULL;
}

/* "1M" for 1048576: the largest unit that divides it. */
static void format_size(char *buf, size_t cap, uint64_t bytes)
{
	static const char units[] = "KMGT";
	size_t unit = 0;

	while (unit < 4 && bytes && bytes % KiB == 0) {
		bytes /= KiB;
		unit++;
	}
	snprintf(buf, cap, "%llu%.1s", (unsigned long long)bytes, unit ? &units[unit - 1] : "");
}

/* Append to a text that is cut at `cap`. */
static void append_name(char *buf, size_t cap, const char *name)
{
	size_t used = strlen(buf);

	snprintf(buf + used, cap - used, "%s%s", used ? ", " : "", name);
}

/* Has it a directory of its own at the top, or one inside another engine's ("hf/layers")? */
static bool is_directory(const struct sl_engine *engine)
{
	return !strchr(engine->name, '/');
}

/* What the value of an option may be: "a number from 1 to 1024". */
static const char *describe_range(const struct option_row *row, char *buf, size_t cap)
{
	char min[32], max[32];

	buf[0] = '\0';
	if (row->kind == NUMBER) {
		snprintf(buf, cap, "a number from %llu to %llu", (unsigned long long)row->min,
			 (unsigned long long)row->max);
	} else if (row->kind == SIZE || row->kind == SIZE_OR_OFF) {
		format_size(min, sizeof(min), row->min);
		format_size(max, sizeof(max), row->max);
		snprintf(buf, cap, "a size from %s to %s%s", min, max, row->kind == SIZE ? "" : ", or off");
	} else if (row->kind == GPU) {
		for (size_t i = 0; i < SL_N_GPUS; i++)
			append_name(buf, cap, sl_gpu_names[i]);
	} else if (row->kind == DEVICE) {
		snprintf(buf, cap, "%s, %s, %s, or a number from 0 to %d", devices[0], devices[1], devices[2],
			 DEVICES_MAX - 1);
	} else if (row->kind == FORMAT) {
		for (size_t i = 0; i < N_FORMATS; i++)
			append_name(buf, cap, formats[i]);
	} else if (row->kind == MEMORY) {
		for (size_t i = 0; i < N_SLOTS_KINDS; i++)
			append_name(buf, cap, memories[i]);
	} else if (row->kind == ENGINE) {
		for (size_t i = 0; i < SL_N_ENGINES; i++) {
			if (is_directory(&sl_engines[i]))
				append_name(buf, cap, sl_engines[i].name);
		}
	}
	return buf;
}

static bool parse_number(const char *text, uint64_t *value, const char **rest)
{
	*value = 0;
	if (!isdigit((unsigned char)text[0]))
		return false;
	for (; isdigit((unsigned char)*text); text++)
		if (__builtin_mul_overflow(*value, 10, value) ||
		    __builtin_add_overflow(*value, (uint64_t)(*text - '0'), value))
			return false;
	*rest = text;
	return true;
}

static bool parse_size(const char *text, uint64_t *value)
{
	static const char units[] = "KMGT";
	const char *rest, *unit;

	if (!parse_number(text, value, &rest))
		return false;
	if (!*rest)
		return true;
	unit = strchr(units, toupper((unsigned char)*rest));
	if (!unit || rest[1])
		return false;
	return !__builtin_mul_overflow(*value, UINT64_C(1) << (10 * (unit - units + 1)), value);
}

static bool parse_format(const char *text, uint64_t *value)
{
	for (*value = 0; *value < N_FORMATS; ++*value)
		if (!strcmp(text, formats[*value]))
			return true;
	return false;
}

static bool parse_engine(const char *text, uint64_t *value)
{
	const struct sl_engine *engine = sl_engine_find(text);

	*value = engine && is_directory(engine) ? (uint64_t)(engine - sl_engines) + 1 : 0;
	return *value;
}

static bool parse_gpu(const char *text, uint64_t *value)
{
	int gpu = sl_gpu_find(text, strlen(text));

	*value = (uint64_t)(gpu + 1);
	return gpu >= 0;
}

static bool parse_device(const struct option_row *row, const char *text, uint64_t *value)
{
	const char *rest;

	for (*value = 0; *value < DEVICE_NUMBER; ++*value)
		if (!strcmp(text, devices[*value]))
			return true;
	if (!parse_number(text, value, &rest) || *rest || *value > row->max)
		return false;
	*value += DEVICE_NUMBER;
	return true;
}

static bool parse_memory(const char *text, uint64_t *value)
{
	for (*value = 0; *value < N_SLOTS_KINDS; ++*value)
		if (!strcmp(text, memories[*value]))
			return true;
	return false;
}

static bool parse_value(const struct option_row *row, const char *text, uint64_t *value)
{
	const char *rest = "";

	if (row->kind == FORMAT)
		return parse_format(text, value);
	if (row->kind == ENGINE)
		return parse_engine(text, value);
	if (row->kind == GPU)
		return parse_gpu(text, value);
	if (row->kind == DEVICE)
		return parse_device(row, text, value);
	if (row->kind == MEMORY)
		return parse_memory(text, value);
	if (row->kind == SIZE_OR_OFF && !strcmp(text, "off")) {
		*value = 0;
		return true;
	}
	if (row->kind == NUMBER ? !parse_number(text, value, &rest) : !parse_size(text, value))
		return false;
	return !*rest && *value >= row->min && *value <= row->max;
}

static uint64_t *target_of(struct options *options, const struct option_row *row)
{
	return (uint64_t *)((char *)options + row->target);
}

static int set_value(struct options *options, const struct option_row *row, const char *text, struct sl_error *err)
{
	uint64_t *target = target_of(options, row);
	uint64_t value, bit = UINT64_C(1) << (row - rows);
	char range[256];

	if (!text || !parse_value(row, text, &value))
		return sl_fail(err, EINVAL, "option '%s%s%s': wanted is %s", row->name, text ? "=" : "",
			       text ? SL_ESC(text) : "", describe_range(row, range, sizeof(range)));
	if ((options->given & bit) && *target != value)
		return sl_fail(err, EINVAL, "option '%s' is given twice, the second time as '%s'", row->name,
			       SL_ESC(text));
	options->given |= bit;
	*target = value;
	return 0;
}

/* Keep an option, still escaped, for libfuse. */
static int pass_on(struct options *options, const char *raw, size_t len, struct sl_error *err)
{
	size_t used = strlen(options->mount);

	if (used + 1 + len + 1 > sizeof(options->mount))
		return sl_fail(err, EINVAL, "the options for the mount are longer than %zu bytes",
			       sizeof(options->mount) - 1);
	snprintf(options->mount + used, sizeof(options->mount) - used, "%s%.*s", used ? "," : "", (int)len, raw);
	return 0;
}

/* Bytes of the first item of a comma list, with the escapes that are in it. */
static size_t item_length(const char *text)
{
	size_t len = 0;

	while (text[len] && text[len] != ',')
		len += text[len] == '\\' && text[len + 1] ? 2 : 1;
	return len;
}

static void unescape(char *dst, const char *src, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		if (src[i] == '\\' && i + 1 < len)
			i++;
		*dst++ = src[i];
	}
	*dst = '\0';
}

/* One item: its raw bytes, and `name` with the value cut off. */
static int apply(struct options *options, const char *name, const char *value, const char *raw, size_t len,
		 struct sl_error *err)
{
	const struct option_row *row = find_row(name);

	if (!row)
		return sl_fail(err, EINVAL, "option '%s' is not known ('rankfs --help' lists them)", SL_ESC(name));
	if (row->kind == REFUSE)
		return sl_fail(err, EINVAL, "option '%s': %s", row->name, row->help);
	if (row->kind == PASS)
		return pass_on(options, raw, len, err);
	if (row->kind == FLAG)
		*target_of(options, row) = 1;
	return has_value(row) ? set_value(options, row, value, err) : 0;
}

static int parse_item(struct options *options, const char *raw, size_t len, struct sl_error *err)
{
	char item[1024], *equals;

	if (len >= sizeof(item))
		return sl_fail(err, EINVAL, "an option of %zu bytes: at most %zu are taken", len, sizeof(item) - 1);
	unescape(item, raw, len);
	equals = strchr(item, '=');
	if (equals)
		*equals++ = '\0';
	return apply(options, item, equals, raw, len, err);
}

int options_parse(struct options *options, const char *text, struct sl_error *err)
{
	while (*text) {
		size_t len = item_length(text);
		int rc = len ? parse_item(options, text, len, err) : 0;

		if (rc)
			return rc;
		text += len + (text[len] == ',');
	}
	if (options->tp)
		snprintf(options->layout, sizeof(options->layout), "tp%llu", (unsigned long long)options->tp);
	return 0;
}

int options_fail(const struct sl_error *err)
{
	fprintf(stderr, "rankfs: %s\n", err->text);
	return EXIT_USAGE;
}

void options_help(FILE *out)
{
	char range[256];

	for (size_t i = 0; i < N_ROWS; i++) {
		if (rows[i].kind == REFUSE || !rows[i].help)
			continue;
		if (has_value(&rows[i]))
			fprintf(out, "    %-12s %s: %s\n", rows[i].name, rows[i].help,
				describe_range(&rows[i], range, sizeof(range)));
		else
			fprintf(out, "    %-12s %s\n", rows[i].name, rows[i].help);
	}
}

struct sl_model_options options_for_model(const struct options *options)
{
	return (struct sl_model_options){ .format = (enum sl_format)options->format, .gpu = (unsigned)options->gpu };
}

struct sl_view_options options_for_view(const struct options *options)
{
	return (struct sl_view_options){ .part_bytes = options->part_bytes, .gpu = (int)options->gpu };
}

struct tree_options options_for_tree(const struct options *options, const char *mountpoint)
{
	return (struct tree_options){
		.engine = options->engine ? sl_engines[options->engine - 1].name : NULL,
		.layout = options->layout[0] ? options->layout : NULL,
		.view = options_for_view(options),
		.mountpoint = mountpoint,
	};
}
