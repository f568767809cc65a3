/*
 * gpu.c - a child loads libcuda, asks its driver API, or opens a backend, and writes the answer into a pipe.
 */
#include "fs/gpu.h"

#include "slicer/backend.h"
#include "slicer/scheme.h"
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PATIENCE_MS = 30000 };
enum { MAJOR = 75, MINOR = 76 }; /* CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_… */

/* What is asked of the driver: CUresult is an int, CUdevice as well. */
struct driver {
	int (*init)(unsigned flags);
	int (*version)(int *version);
	int (*count)(int *n);
	int (*get)(int *device, int number);
	int (*name)(char *name, int size, int device);
	int (*attribute)(int *value, int which, int device);
	int (*error)(int result, const char **text);
};

static const struct {
	const char *name;
	size_t at;
} functions[] = {
	{ "cuInit", offsetof(struct driver, init) },
	{ "cuDriverGetVersion", offsetof(struct driver, version) },
	{ "cuDeviceGetCount", offsetof(struct driver, count) },
	{ "cuDeviceGet", offsetof(struct driver, get) },
	{ "cuDeviceGetName", offsetof(struct driver, name) },
	{ "cuDeviceGetAttribute", offsetof(struct driver, attribute) },
	{ "cuGetErrorString", offsetof(struct driver, error) },
};

/* ---- in the child ---- */

static int load(struct driver *driver, struct sl_error *err)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

	if (!library)
		return sl_fail(err, ENODEV, "no NVIDIA driver: %s", dlerror());
	for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
		void *function = dlsym(library, functions[i].name);
		if (!function)
			return sl_fail(err, ENODEV, "the NVIDIA driver has no %s", functions[i].name);
		memcpy((char *)driver + functions[i].at, &function, sizeof(function));
	}
	return 0;
}

static int check(const struct driver *driver, int result, const char *what, struct sl_error *err)
{
	const char *text = NULL;

	if (result == 0)
		return 0;
	driver->error(result, &text);
	return sl_fail(err, ENODEV, "%s: %s (CUDA error %d)", what, text ? text : "failed", result);
}

static int ask(struct gpu *gpu, struct sl_error *err)
{
	struct driver driver;
	int device = 0, ret = load(&driver, err);

	if (!ret)
		ret = check(&driver, driver.init(0), "the NVIDIA driver does not start", err);
	if (!ret)
		ret = check(&driver, driver.version(&gpu->driver), "cuDriverGetVersion", err);
	if (!ret)
		ret = check(&driver, driver.count(&gpu->n_devices), "cuDeviceGetCount", err);
	if (!ret && gpu->number >= gpu->n_devices)
		ret = sl_fail(err, ENODEV, "there is no GPU %d: the driver shows %d", gpu->number, gpu->n_devices);
	if (!ret)
		ret = check(&driver, driver.get(&device, gpu->number), "cuDeviceGet", err);
	if (!ret)
		ret = check(&driver, driver.name(gpu->name, sizeof(gpu->name), device), "cuDeviceGetName", err);
	if (!ret)
		ret = check(&driver, driver.attribute(&gpu->major, MAJOR, device), "cuDeviceGetAttribute", err);
	if (!ret)
		ret = check(&driver, driver.attribute(&gpu->minor, MINOR, device), "cuDeviceGetAttribute", err);
	return ret;
}

static int try(const struct sl_backend *backend, int number, struct sl_error *err)
{
	void *state;
	int ret = backend->open(&state, number, err);

	if (!ret)
		backend->close(state);
	return ret;
}

struct answer {
	struct gpu gpu;
	struct sl_error err;
};

/* What libraries print is for nobody. */
static void be_silent(void)
{
	int nowhere = open("/dev/null", O_RDWR | O_CLOEXEC);

	dup2(nowhere, STDOUT_FILENO);
	dup2(nowhere, STDERR_FILENO);
}

/* Of a backend, or of the driver. */
static void answer(int fd, const struct sl_backend *backend, int number)
{
	struct answer answer = { .gpu = { .number = number < 0 ? 0 : number } };

	be_silent();
	(void)!(backend ? try(backend, number, &answer.err) : ask(&answer.gpu, &answer.err));
	_exit(write(fd, &answer, sizeof(answer)) != sizeof(answer));
}

/* ---- in the parent ---- */

/* An answer is written at once or not at all: it is smaller than PIPE_BUF. */
static int hear(int fd, pid_t child, struct answer *answer, struct sl_error *err)
{
	struct pollfd in = { .fd = fd, .events = POLLIN };
	int n, status = 0;

	do
		n = poll(&in, 1, PATIENCE_MS);
	while (n < 0 && errno == EINTR);
	if (n <= 0) {
		kill(child, SIGKILL);
		waitpid(child, NULL, WNOHANG); /* it may hang in the kernel */
		return sl_fail(err, ENODEV, "the NVIDIA driver does not answer within %d s", PATIENCE_MS / 1000);
	}
	bool heard = read(fd, answer, sizeof(*answer)) == sizeof(*answer);
	waitpid(child, &status, 0);
	if (!heard)
		return sl_fail(err, ENODEV, "the NVIDIA driver fails whoever asks it (%s %d)",
			       WIFSIGNALED(status) ? "signal" : "exit status",
			       WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
	return answer->err.errnum ? sl_fail(err, answer->err.errnum, "%s", answer->err.text) : 0;
}

static int ask_child(struct answer *heard, const struct sl_backend *backend, int number, struct sl_error *err)
{
	int fds[2], ret;
	pid_t child;

	if (pipe2(fds, O_CLOEXEC))
		return sl_fail(err, errno, "no pipe: %s", strerror(errno));
	child = fork();
	if (child == 0)
		answer(fds[1], backend, number);
	close(fds[1]);
	ret = child < 0 ? sl_fail(err, errno, "no process: %s", strerror(errno)) : hear(fds[0], child, heard, err);
	close(fds[0]);
	return ret;
}

int gpu_find(struct gpu *gpu, int number, struct sl_error *err)
{
	static struct {
		bool known;
		int number, ret;
		struct answer answer;
	} kept;

	if (!kept.known || kept.number != number) {
		memset(&kept, 0, sizeof(kept));
		struct sl_error own = SL_ERROR_INIT;
		kept.ret = ask_child(&kept.answer, NULL, number, &own);
		kept.answer.err = own;
		kept.number = number;
		kept.known = true;
	}
	*gpu = kept.answer.gpu;
	return kept.ret ? sl_fail(err, kept.answer.err.errnum, "%s", kept.answer.err.text) : 0;
}

int gpu_try(const struct sl_backend *backend, int number, struct sl_error *err)
{
	struct answer heard;

	return ask_child(&heard, backend, number, err);
}

uint64_t gpu_kind(const struct gpu *gpu)
{
	switch (gpu->major) {
	case 8:
		return 1 + (gpu->minor == 9 ? SL_SM89 : SL_SM80);
	case 9:
		return 1 + SL_SM90;
	case 10:
		return 1 + SL_SM100;
	default:
		return 0;
	}
}
