/*
 * cmd_doctor.c - rankfs doctor [--json]: what this machine allows, and for each "no" what to do about it.
 *
 * Nothing is mounted and nothing is changed. Exit 2 when a mount is impossible here, else 0: all the rest costs speed, or
 * is only good to know.
 */
#include "fs/cachedir.h"
#include "fs/command.h"
#include "fs/device.h"
#include "fs/gpu.h"
#include "fs/memory.h"
#include "fs/options.h"
#include "fs/print.h"
#include "fs/serve.h"
#include "fs/slot.h"
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#define CAP_SYS_ADMIN_BIT 21 /* linux/capability.h */

enum answer { YES, NO, INFO, N_ANSWERS };

struct finding {
	enum answer answer;
	char value[200];
	char advice[300]; /* for NO */
};

static void say(struct finding *finding, enum answer answer, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
static void advise(struct finding *finding, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void say(struct finding *finding, enum answer answer, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	finding->answer = answer;
	vsnprintf(finding->value, sizeof(finding->value), fmt, ap);
	va_end(ap);
}

static void advise(struct finding *finding, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(finding->advice, sizeof(finding->advice), fmt, ap);
	va_end(ap);
}

/* ---- asking ---- */

/* The first line of a file, or the line after a key at its beginning; "" when there is none. */
static const char *read_line(const char *path, const char *key, char *line, size_t size)
{
	FILE *file = fopen(path, "re");
	size_t len = strlen(key);
	bool found = false;

	while (file && !found && fgets(line, (int)size, file))
		found = !strncmp(line, key, len);
	if (file)
		fclose(file);
	if (!found)
		return strcpy(line, "");
	line[strcspn(line, "\n")] = '\0';
	return memmove(line, line + len, strlen(line + len) + 1);
}

static bool kernel_is_at_least(int major, int minor)
{
	struct utsname system;
	int has_major = 0, has_minor = 0;

	uname(&system);
	if (sscanf(system.release, "%d.%d", &has_major, &has_minor) != 2)
		return false;
	return has_major > major || (has_major == major && has_minor >= minor);
}

static bool may_administrate(void)
{
	char line[128];

	read_line("/proc/self/status", "CapEff:\t", line, sizeof(line));
	return strtoull(line, NULL, 16) >> CAP_SYS_ADMIN_BIT & 1;
}

/* A program in PATH or where mount(8) looks; "" when it is in neither. */
static const char *find_program(const char *name, char *path, size_t size)
{
	char *dirs, *rest, *dir;

	if (asprintf(&dirs, "%s:/usr/local/bin:/usr/bin:/bin", getenv("PATH") ? getenv("PATH") : "") < 0)
		return strcpy(path, "");
	for (rest = dirs; (dir = strsep(&rest, ":"));) {
		snprintf(path, size, "%s/%s", dir, name);
		if (*dir && !access(path, X_OK))
			break;
		*path = '\0';
	}
	free(dirs);
	return path;
}

static bool is_setuid_root(const char *path)
{
	struct stat st;

	return !stat(path, &st) && st.st_uid == 0 && (st.st_mode & S_ISUID);
}

/* ---- the checks ---- */

static void check_kernel(struct finding *finding)
{
	struct utsname system;

	uname(&system);
	say(finding, kernel_is_at_least(4, 20) ? YES : NO, "%s", system.release);
	advise(finding, "requests are limited to 128 KiB before Linux 4.20: use a later kernel");
}

static void check_device(struct finding *finding)
{
	int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);

	if (fd >= 0) {
		close(fd);
		say(finding, YES, "/dev/fuse opens");
		return;
	}
	say(finding, NO, "/dev/fuse: %s", strerror(errno));
	if (errno == ENOENT || errno == ENODEV || errno == ENXIO)
		advise(finding,
		       "load it with 'modprobe fuse'; in a container, give it the device (--device /dev/fuse)");
	else
		advise(finding, "its mode is usually 0666: 'chmod 666 /dev/fuse' as root, or run rankfs as root; in a "
				"container: --device /dev/fuse --cap-add SYS_ADMIN");
}

/* mount(2) itself, or the setuid helper. */
static void check_mount(struct finding *finding)
{
	char path[PATH_MAX];

	find_program("fusermount3", path, sizeof(path));
	if (may_administrate())
		say(finding, YES, "by itself (CAP_SYS_ADMIN)");
	else if (*path && is_setuid_root(path))
		say(finding, YES, "through %s", path);
	else if (*path)
		say(finding, NO, "no CAP_SYS_ADMIN, and %s is not setuid root", path);
	else
		say(finding, NO, "no CAP_SYS_ADMIN, and no fusermount3");
	advise(finding,
	       "install the package fuse3, or run rankfs as root; where neither can be had, use 'rankfs export'");
}

static void check_libfuse(struct finding *finding)
{
	say(finding, serve_libfuse_has_passthrough() ? YES : NO, "%s", serve_libfuse_version());
	advise(finding, "built with a libfuse before 3.17.1: no passthrough; build rankfs after 'make deps'");
}

static void check_passthrough(struct finding *finding)
{
	if (!kernel_is_at_least(6, 9))
		say(finding, NO, "the kernel has none");
	else if (!serve_libfuse_has_passthrough())
		say(finding, NO, "libfuse %s has none", serve_libfuse_version());
	else if (!may_administrate())
		say(finding, NO, "no CAP_SYS_ADMIN");
	else
		say(finding, YES, "weight files are staged ahead of their readers");
	advise(finding, "it needs Linux 6.9, a rankfs built with libfuse 3.17.1, and root; reads are right without it");
}

static void check_staging(struct finding *finding)
{
	struct sl_error err = SL_ERROR_INIT;
	struct slots *slots;

	if (!serve_libfuse_has_passthrough() || !kernel_is_at_least(6, 9) || !may_administrate()) {
		say(finding, NO, "it rests on passthrough");
	} else if (slots_open(&slots, memory_available() / STAGE_SHARE, SLOTS_HUGE, &err)) {
		say(finding, NO, "%s", err.text);
	} else {
		say(finding, YES, "up to %s, %s", print_size(slots_budget(slots)).text, slots_what(slots));
		slots_close(slots);
	}
	advise(finding, "weight files are streamed: two to five times slower on first touch, and the same bytes");
}

static void check_read_ahead(struct finding *finding)
{
	if (!geteuid() && !access("/sys/class/bdi", W_OK))
		say(finding, YES, "/sys/class/bdi is writable");
	else
		say(finding, NO, "%s", geteuid() ? "only root can raise it" : "/sys is read-only");
	advise(finding, "128 KiB make reads 1.4 to 20 times slower: mount as root, or have root write 4096 to "
			"/sys/class/bdi/$(mountpoint -d MOUNTPOINT)/read_ahead_kb after the mount");
}

static void check_connections(struct finding *finding)
{
	char path[64] = "/sys/fs/fuse/connections/.";

	if (!geteuid() && !access(path, W_OK))
		say(finding, INFO, "requests in flight can be tuned");
	else
		say(finding, INFO, "requests in flight stay as negotiated");
}

static void check_huge_pages(struct finding *finding)
{
	char line[200];

	read_line("/sys/kernel/mm/transparent_hugepage/shmem_enabled", "", line, sizeof(line));
	if (!*line)
		say(finding, NO, "not for tmpfs: the kernel has none");
	else if (strstr(line, "[deny]"))
		say(finding, NO, "denied for tmpfs");
	else
		say(finding, YES, "tmpfs may have them");
	advise(finding, "weights in memory are mapped faster with them: a kernel with CONFIG_TRANSPARENT_HUGEPAGE; "
			"/sys/kernel/mm/transparent_hugepage/shmem_enabled must not be 'deny'");
}

static void check_memory(struct finding *finding)
{
	char line[128];
	uint64_t kib;

	read_line("/proc/meminfo", "MemAvailable:", line, sizeof(line));
	kib = strtoull(line, NULL, 10);
	say(finding, INFO, "%s available", print_size(kib * 1024).text);
}

/* The limit of this process's own group: of the unified hierarchy, or of the old one as a container sees it. */
static void check_memory_limit(struct finding *finding)
{
	char group[PATH_MAX], path[PATH_MAX + 64], limit[64];
	uint64_t bytes;

	read_line("/proc/self/cgroup", "0::", group, sizeof(group));
	snprintf(path, sizeof(path), "/sys/fs/cgroup%s/memory.max", group);
	if (!*read_line(path, "", limit, sizeof(limit)))
		read_line("/sys/fs/cgroup/memory/memory.limit_in_bytes", "", limit, sizeof(limit));
	bytes = strtoull(limit, NULL, 10); /* 0 of "max" */
	if (!bytes || bytes > UINT64_C(1) << 60)
		say(finding, INFO, "none");
	else
		say(finding, INFO, "%s; the page cache of what is read counts", print_size(bytes).text);
}

static void check_open_files(struct finding *finding)
{
	struct rlimit files = { 0, 0 };

	if (getrlimit(RLIMIT_NOFILE, &files))
		say(finding, INFO, "unknown: %s", strerror(errno));
	else
		say(finding, files.rlim_max >= 4096 ? YES : NO, "%" PRIu64 ", up to %" PRIu64, (uint64_t)files.rlim_cur,
		    (uint64_t)files.rlim_max);
	advise(finding,
	       "every shard is held open, and every reader: raise the hard limit ('ulimit -Hn', LimitNOFILE=)");
}

static void check_other_users(struct finding *finding)
{
	char line[200];

	read_line("/etc/fuse.conf", "user_allow_other", line, sizeof(line));
	if (!geteuid())
		say(finding, YES, "root's mounts let them in");
	else if (!access("/etc/fuse.conf", R_OK) && !*line)
		say(finding, NO, "only you can read your mounts");
	else
		say(finding, YES, "with -o allow_other");
	advise(finding,
	       "an engine that runs as another user needs it: add the line user_allow_other to /etc/fuse.conf");
}

static void check_cache(struct finding *finding)
{
	struct cachedir dir;
	uint64_t bytes;
	unsigned n;

	cachedir_find(&dir, false);
	n = cachedir_count(&dir, &bytes);
	if (dir.why[0])
		say(finding, NO, "%s", dir.why);
	else
		say(finding, YES, "%u checkpoint%s, %s, in %s", n, n == 1 ? "" : "s", print_size(bytes).text, dir.path);
	advise(finding, "headers are read at every mount; XDG_CACHE_HOME names another place");
	cachedir_close(&dir);
}

static void check_gpu(struct finding *finding)
{
	struct sl_error err = SL_ERROR_INIT;
	struct gpu gpu;

	if (gpu_find(&gpu, -1, &err))
		say(finding, INFO, "none: %s", err.text);
	else
		say(finding, INFO, "%s, compute capability %d.%d; %d of them; the driver does CUDA %d.%d", gpu.name,
		    gpu.major, gpu.minor, gpu.n_devices, gpu.driver / 1000, gpu.driver % 1000 / 10);
}

/* Not a NO: the processor makes the same bytes. */
static void check_computing(struct finding *finding)
{
	const struct options options = { .device = DEVICE_CUDA };
	struct sl_error err = SL_ERROR_INIT;
	struct device *device = NULL;
	struct gpu gpu;

	if (gpu_find(&gpu, -1, &err))
		say(finding, INFO, "on the processor");
	else if (device_open(&device, &options, &err))
		say(finding, INFO, "on the processor: %s", err.text);
	else
		say(finding, INFO, "on the processor, or on the GPU with -o device=auto");
	device_close(device);
}

/* To add a check: a row. A NO of a vital one means that nothing can be mounted. */
static const struct check {
	const char *name;
	void (*run)(struct finding *finding);
	bool vital;
} checks[] = {
	{ "kernel", check_kernel, false },
	{ "device", check_device, true },
	{ "mounting", check_mount, true },
	{ "libfuse", check_libfuse, false },
	{ "passthrough", check_passthrough, false },
	{ "staging", check_staging, false },
	{ "read-ahead", check_read_ahead, false },
	{ "requests", check_connections, false },
	{ "huge pages", check_huge_pages, false },
	{ "memory", check_memory, false },
	{ "memory limit", check_memory_limit, false },
	{ "open files", check_open_files, false },
	{ "other users", check_other_users, false },
	{ "header cache", check_cache, false },
	{ "gpu", check_gpu, false },
	{ "computing", check_computing, false },
};

static const struct {
	const char *word;
	enum colour colour;
} answers[N_ANSWERS] = {
	[YES] = { "yes", COLOUR_GREEN },
	[NO] = { "no", COLOUR_RED },
	[INFO] = { "-", COLOUR_OFF },
};

static void print_finding(const struct check *check, const struct finding *finding)
{
	enum answer answer = finding->answer;

	printf("%-13s %s%-4s%s %s\n", check->name, print_colour(stdout, answers[answer].colour), answers[answer].word,
	       print_colour(stdout, COLOUR_OFF), finding->value);
	if (answer == NO)
		printf("%-18s -> %s\n", "", finding->advice);
}

static void print_finding_json(struct json_writer *json, const struct check *check, const struct finding *finding)
{
	json_begin(json, NULL, '{');
	json_string(json, "check", check->name);
	json_string(json, "answer", answers[finding->answer].word);
	json_string(json, "value", finding->value);
	if (finding->answer == NO)
		json_string(json, "advice", finding->advice);
	json_end(json, '}');
}

static bool run_checks(bool json)
{
	struct json_writer writer;
	bool can_mount = true;

	json_init(&writer, stdout, 1);
	if (json)
		json_begin(&writer, NULL, '[');
	for (size_t i = 0; i < sizeof(checks) / sizeof(checks[0]); i++) {
		struct finding finding = { .answer = INFO };

		checks[i].run(&finding);
		if (json)
			print_finding_json(&writer, &checks[i], &finding);
		else
			print_finding(&checks[i], &finding);
		can_mount &= !checks[i].vital || finding.answer != NO;
	}
	if (json)
		json_end(&writer, ']');
	return can_mount;
}

int cmd_doctor(int argc, char **argv)
{
	bool json = argc == 2 && !strcmp(argv[1], "--json");
	struct sl_error err = SL_ERROR_INIT;
	bool can_mount;

	if (argc > 1 && !json) {
		sl_fail(&err, EINVAL, "doctor: '%s': only --json is wanted", SL_ESC(argv[1]));
		return options_fail(&err);
	}
	can_mount = run_checks(json);
	if (!can_mount && !json)
		printf("\nNothing can be mounted here; 'rankfs cat' and 'rankfs export' need no mount.\n");
	return can_mount ? EXIT_OK : EXIT_SYSTEM;
}
