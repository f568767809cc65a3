/*
 * cmd_mount.c - rankfs SOURCE MOUNTPOINT: open the checkpoint, go to the background, mount, serve.
 *
 * The checkpoint is opened first and by the process on the terminal, so that whatever is wrong with it is said there, with
 * nothing mounted yet. It stays open over the fork: that is why one may mount over the source itself. Threads are made
 * only after the fork.
 */
#include "fs/cachedir.h"
#include "fs/command.h"
#include "fs/daemon.h"
#include "fs/device.h"
#include "fs/knobs.h"
#include "fs/log.h"
#include "fs/memory.h"
#include "fs/mountpoint.h"
#include "fs/options.h"
#include "fs/serve.h"
#include "fs/stage.h"
#include "fs/stats.h"
#include <errno.h>
#include <getopt.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define STREAM_READ_AHEAD_KB 4096

/* What the command line asks for, then what it became. */
struct mount {
	struct options options;
	bool foreground, debug, help, version;
	char source[PATH_MAX], mountpoint[PATH_MAX]; /* absolute */
	struct device *device;
	struct cachedir cachedir;		     /* what became of the cache */
	struct sl_model *model;
	struct tree *tree;
	struct stats *stats;
	struct stage *stage;
	struct serve *serve;
	struct daemon daemon;
	atomic_int exit_code;
};

static void print_help(FILE *out)
{
	fprintf(out, "usage: rankfs SOURCE MOUNTPOINT [-o OPTION[=VALUE][,…]] [-f] [-d]\n"
		     "\n"
		     "    -o  options, below; those of fstab are accepted\n"
		     "    -f  stay in the foreground, log to stderr\n"
		     "    -d  the same, and print every request\n"
		     "    -h, --help, -V, --version\n"
		     "\n"
		     "options:\n");
	options_help(out);
}

static int parse_flags(struct mount *mount, int argc, char **argv, struct sl_error *err)
{
	static const struct option long_options[] = {
		{ "help", no_argument, NULL, 'h' },
		{ "version", no_argument, NULL, 'V' },
		{ NULL, 0, NULL, 0 },
	};
	int flag, rc = 0;

	opterr = 0;
	optind = 0; /* glibc: start anew */
	while (!rc && (flag = getopt_long(argc, argv, ":o:fdhV", long_options, NULL)) != -1) {
		mount->foreground |= flag == 'f' || flag == 'd';
		mount->debug |= flag == 'd';
		mount->help |= flag == 'h';
		mount->version |= flag == 'V';
		if (flag == 'o')
			rc = options_parse(&mount->options, optarg, err);
		else if (flag == ':')
			rc = sl_fail(err, EINVAL, "%s wants an argument", SL_ESC(argv[optind - 1]));
		else if (flag == '?')
			rc = sl_fail(err, EINVAL, "%s: no such option ('rankfs --help' lists them)",
				     SL_ESC(argv[optind - 1]));
	}
	return rc;
}

/* Both must be there, and nothing else. */
static int check_arguments(const struct mount *mount, int argc, char **argv, struct sl_error *err)
{
	if (mount->help || mount->version || argc == 2)
		return 0;
	if (argc < 2)
		return sl_fail(err, EINVAL, "wanted are a SOURCE and a MOUNTPOINT ('rankfs --help' tells more)");
	return sl_fail(err, EINVAL, "'%s': a SOURCE and a MOUNTPOINT are all that is wanted", SL_ESC(argv[2]));
}

/* The model and the tree: what can be wrong with the checkpoint is found here. A path that cannot be resolved is opened as
 * it is, since the model's own message about it is the better one. */
static int open_source(struct mount *mount, const char *source, struct sl_error *err)
{
	if (strlen(source) >= sizeof(mount->source))
		return sl_fail(err, ENAMETOOLONG, "the path of the source is longer than %zu bytes",
			       sizeof(mount->source) - 1);
	if (!realpath(source, mount->source))
		strcpy(mount->source, source);
	return cachedir_open_model(&mount->cachedir, &mount->model, mount->source, &mount->options, err);
}

/* Asked now, so that a missing GPU is said on the terminal; opened after the fork. */
static int open_device(struct mount *mount, struct sl_error *err)
{
	int rc = device_open(&mount->device, &mount->options, err);

	if (!rc)
		device_use(mount->device, mount->model);
	device_default_gpu(&mount->options);
	return rc;
}

static int open_tree(struct mount *mount, struct sl_error *err)
{
	const struct tree_options options = options_for_tree(&mount->options, mount->mountpoint);

	return tree_open(&mount->tree, mount->model, &options, err);
}

static int prepare(struct mount *mount, const char *source, const char *mountpoint, struct sl_error *err)
{
	int rc = open_source(mount, source, err);

	if (!rc)
		rc = mountpoint_check(mountpoint, mount->source, mount->mountpoint, err);
	if (!rc)
		rc = open_device(mount, err);
	return rc ? rc : open_tree(mount, err);
}

static void print_notes(const struct sl_model *model)
{
	for (const struct sl_note *note = model->notes; note; note = note->next)
		fprintf(stderr, "rankfs: note: %s\n", note->text);
}

/* Where the headers came from: "read (not cached: its files changed within the last 2 seconds)". */
static const char *describe_cache(const struct mount *mount, char *text, size_t size)
{
	const struct sl_cache *cache = &mount->cachedir.cache;
	const char *why = cache->why[0] ? cache->why : mount->cachedir.why;

	if (cache->hit)
		return "from the cache";
	snprintf(text, size, "read%s%s%s%s", cache->stored ? ", and cached" : "", why[0] ? " (not cached: " : "", why,
		 why[0] ? ")" : "");
	return text;
}

/* One line with what was negotiated and what could not be set. */
static void log_mounted(const struct mount *mount, const struct knobs *knobs, unsigned threads)
{
	char text[1024] = "", cache[256];
	size_t used = 0;

	for (int i = 0; i < N_KNOBS && used < sizeof(text); i++) {
		const struct knob *knob = &knobs->knobs[i];

		used += (size_t)snprintf(text + used, sizeof(text) - used, ", %s %llu%s%s%s", knob->name,
					 (unsigned long long)knob->value, knob->why[0] ? " (" : "", knob->why,
					 knob->why[0] ? ")" : "");
	}
	log_line(LOG_INFO, "%s is mounted on %s: libfuse %s, %u threads%s, headers %s", mount->source,
		 mount->mountpoint, serve_libfuse_version(), threads, text,
		 describe_cache(mount, cache, sizeof(cache)));
}

static unsigned n_threads(const struct mount *mount)
{
	return mount->options.threads ? (unsigned)mount->options.threads : serve_default_threads();
}

/* Look through the kernel, which waits until INIT has been answered. */
static int look(const struct mount *mount, struct sl_error *err)
{
	struct stat st;

	if (stat(mount->mountpoint, &st))
		return sl_fail(err, errno, "%s: mounted, but it does not answer: %s", mount->mountpoint,
			       strerror(errno));
	return 0;
}

/* How far the kernel reads ahead, which is for files that are streamed. Where those are few, it stays as small as the
 * kernel made it: engines first map every file to read its header, and each of these faults reads that much. */
static uint64_t choose_read_ahead(const struct mount *mount)
{
	struct stage_figures figures;

	if (mount->options.read_ahead_kb != OPTIONS_AUTO)
		return mount->options.read_ahead_kb;
	stage_figures(mount->stage, &figures);
	return figures.staging ? STREAM_READ_AHEAD_KB : 0;
}

/* Once the mount answers. What the kernel reads ahead is no evidence of a reader who goes on. */
static void set_up(struct mount *mount, struct knobs *knobs)
{
	const struct knob *read_ahead = &knobs->knobs[KNOB_READ_AHEAD];
	const char *why;
	int device = serve_device(mount->serve, &why);

	if (mount->options.no_passthrough)
		stage_start(mount->stage, -1, "nopassthrough");
	else
		stage_start(mount->stage, device, why);
	knobs_apply(knobs, mount->mountpoint, choose_read_ahead(mount));
	if (read_ahead->value)
		stage_set_read_ahead(mount->stage, read_ahead->value << 10);
	stats_set_knobs(mount->stats, knobs);
}

/* A thread beside those that serve: sees that the mount works, turns the kernel's knobs, and tells the parent. */
static void *become_ready(void *context)
{
	struct mount *mount = context;
	struct sl_error err = SL_ERROR_INIT;
	struct knobs knobs;

	if (look(mount, &err)) {
		mount->exit_code = command_fail(&err);
		kill(getpid(), SIGTERM);
		return NULL;
	}
	set_up(mount, &knobs);
	daemon_ready(&mount->daemon);
	log_mounted(mount, &knobs, n_threads(mount));
	return NULL;
}

static int start_thread(pthread_t *thread, struct mount *mount, struct sl_error *err)
{
	sigset_t all, before;
	int rc;

	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &before);
	rc = pthread_create(thread, NULL, become_ready, mount);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return rc ? sl_fail(err, rc, "cannot make a thread: %s", strerror(rc)) : 0;
}

static void append_option(char *list, size_t size, const char *option)
{
	size_t used = strlen(list);

	snprintf(list + used, size - used, "%s%s", used && *option ? "," : "", option);
}

static int open_serve(struct mount *mount, struct sl_error *err)
{
	const struct options *options = &mount->options;
	char list[sizeof(options->mount) + 32] = "";
	struct serve_setup setup = {
		.tree = mount->tree,
		.stats = mount->stats,
		.stage = mount->stage,
		.source = mount->source,
		.mountpoint = mount->mountpoint,
		.mount = list,
		.threads = n_threads(mount),
		.debug = mount->debug,
	};

	if (options->allow_root)
		append_option(list, sizeof(list), "allow_root");
	else if (options->allow_other || !geteuid())
		append_option(list, sizeof(list), "allow_other");
	append_option(list, sizeof(list), options->mount);
	return serve_open(&mount->serve, &setup, err);
}

static int open_stats(struct mount *mount, struct sl_error *err)
{
	struct stats_setup setup = {
		.model = mount->model,
		.options = &mount->options,
		.device = mount->device,
		.source = mount->source,
		.mountpoint = mount->mountpoint,
		.libfuse = serve_libfuse_version(),
		.threads = n_threads(mount),
	};
	int rc = stats_open(&mount->stats, &setup, err);

	if (!rc)
		tree_set_live(mount->tree, stats_text, mount->stats);
	return rc;
}

static int open_stage(struct mount *mount, struct sl_error *err)
{
	uint64_t budget = mount->options.stage_bytes;
	int rc;

	if (budget == OPTIONS_AUTO)
		budget = memory_available() / STAGE_SHARE;
	rc = stage_new(&mount->stage, mount->tree, budget, (enum slots_kind)mount->options.memory, err);
	if (!rc)
		stats_set_stage(mount->stats, mount->stage);
	return rc;
}

static int run(struct mount *mount, struct sl_error *err)
{
	pthread_t thread;
	int rc = start_thread(&thread, mount, err);

	if (rc)
		return rc;
	rc = serve_run(mount->serve, err);
	serve_unmount(mount->serve); /* if the thread still waits for an answer, it gets ENOTCONN now */
	pthread_join(thread, NULL);
	stage_stop(mount->stage);
	return rc;
}

/* In the process that serves: its exit code. */
static int serve_mount(struct mount *mount)
{
	struct sl_error err = SL_ERROR_INIT;
	int rc = chdir("/") ? sl_fail(&err, errno, "/: %s", strerror(errno)) : 0;

	if (!rc)
		rc = open_stats(mount, &err);
	if (!rc)
		rc = open_stage(mount, &err);
	if (!rc)
		rc = open_serve(mount, &err);
	log_libfuse_aloud();
	if (!rc)
		rc = run(mount, &err);
	if (rc)
		mount->exit_code = command_fail(&err);
	if (mount->exit_code)
		daemon_failed(&mount->daemon, mount->exit_code);
	return mount->exit_code;
}

static void close_mount(struct mount *mount)
{
	serve_close(mount->serve);
	stage_free(mount->stage);
	if (mount->tree)
		tree_close(mount->tree);
	stats_close(mount->stats);
	if (mount->model)
		sl_model_close(mount->model);
	device_close(mount->device);
}

static int mount_source(struct mount *mount, const char *source, const char *mountpoint)
{
	struct sl_error err = SL_ERROR_INIT;
	int exit_code;

	if (prepare(mount, source, mountpoint, &err))
		return command_fail(&err);
	print_notes(mount->model);
	if (daemon_start(&mount->daemon, mount->foreground, mount->mountpoint, &exit_code))
		exit_code = serve_mount(mount);
	return exit_code;
}

int cmd_mount(int argc, char **argv)
{
	struct mount mount = { .exit_code = EXIT_OK };
	struct sl_error err = SL_ERROR_INIT;
	int exit_code = EXIT_OK;

	daemon_prepare();
	options_init(&mount.options);
	if (parse_flags(&mount, argc, argv, &err) || check_arguments(&mount, argc - optind, argv + optind, &err))
		return options_fail(&err);
	if (mount.help)
		print_help(stdout);
	else if (mount.version)
		printf("rankfs %s\n", RANKFS_VERSION);
	else
		exit_code = mount_source(&mount, argv[optind], argv[optind + 1]);
	close_mount(&mount);
	return exit_code;
}
