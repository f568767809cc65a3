/*
 * serve.c - a session with the kernel: its options, the mount, the threads, the end.
 */
#include "fs/log.h"
#include "fs/serve_impl.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

__attribute__((format(printf, 2, 0))) static void on_log(enum fuse_log_level level, const char *fmt, va_list ap)
{
	log_libfuse((int)level, fmt, ap); /* libfuse's levels are syslog's */
}

/* The argument of -o: what a read-only mount always has, then the caller's own. */
static int add_options(struct fuse_args *args, const struct serve_setup *setup)
{
	char *text = NULL, *device;
	int rc = -1;

	if (asprintf(&device, "fsname=%s", setup->source) < 0)
		return -1;
	if (!fuse_opt_add_opt(&text, "ro,nosuid,nodev,default_permissions,subtype=rankfs") &&
	    !fuse_opt_add_opt_escaped(&text, device) && (!setup->mount[0] || !fuse_opt_add_opt(&text, setup->mount)) &&
	    (!setup->debug || !fuse_opt_add_opt(&text, "debug")))
		rc = fuse_opt_add_arg(args, "-o") || fuse_opt_add_arg(args, text) ? -1 : 0;
	free(device);
	free(text);
	return rc;
}

static int new_session(struct serve *serve, struct sl_error *err)
{
	struct fuse_args args = FUSE_ARGS_INIT(0, NULL);

	fuse_set_log_func(on_log);
	if (!fuse_opt_add_arg(&args, "rankfs") && !add_options(&args, &serve->setup))
		serve->session = fuse_session_new(&args, &serve_callbacks, sizeof(serve_callbacks), serve);
	fuse_opt_free_args(&args);
	if (!serve->session)
		return sl_fail(err, EINVAL, "libfuse %s: %s", fuse_pkgversion(),
			       log_libfuse_said()[0] ? log_libfuse_said() : "no memory for a session");
	return 0;
}

static int mount_session(struct serve *serve, struct sl_error *err)
{
	if (fuse_set_signal_handlers(serve->session))
		return sl_fail(err, EIO, "cannot set signal handlers");
	if (fuse_session_mount(serve->session, serve->setup.mountpoint))
		return sl_fail(err, ENODEV, "%s: cannot mount: %s ('rankfs doctor' says what is missing)",
			       serve->setup.mountpoint,
			       log_libfuse_said()[0] ? log_libfuse_said() : "fusermount3 refused it");
	return 0;
}

int serve_open(struct serve **out, const struct serve_setup *setup, struct sl_error *err)
{
	struct serve *serve = calloc(1, sizeof(*serve));
	int rc;

	*out = NULL;
	if (!serve)
		return sl_fail(err, ENOMEM, "no memory to serve");
	serve->setup = *setup;
	pthread_mutex_init(&serve->lock, NULL);
	pthread_mutex_init(&serve->storing, NULL);
	if (pthread_key_create(&serve->buffers, free)) {
		free(serve);
		return sl_fail(err, EAGAIN, "no key for the buffers of threads");
	}
	rc = new_session(serve, err);
	if (!rc)
		rc = mount_session(serve, err);
	if (rc)
		serve_close(serve);
	else
		*out = serve;
	return rc;
}

int serve_run(struct serve *serve, struct sl_error *err)
{
	struct fuse_loop_config *config = fuse_loop_cfg_create();
	int rc;

	if (!config)
		return sl_fail(err, ENOMEM, "no memory to serve");
	fuse_loop_cfg_set_max_threads(config, serve->setup.threads);
	fuse_loop_cfg_set_idle_threads(config, serve->setup.threads);
	fuse_loop_cfg_set_clone_fd(config, !access("/dev/fuse", R_OK | W_OK));
	rc = fuse_session_loop_mt(serve->session, config);
	fuse_loop_cfg_destroy(config);
	/* Positive: the signal that ended it. */
	return rc < 0 ? sl_fail(err, -rc, "%s: serving ended: %s", serve->setup.mountpoint, strerror(-rc)) : 0;
}

int serve_device(const struct serve *serve, const char **why)
{
	*why = serve_libfuse_has_passthrough() ? "the kernel has none: Linux 6.9 is the first"
					       : "built with a libfuse before 3.17.1";
	return serve->passthrough ? fuse_session_fd(serve->session) : -1;
}

void serve_unmount(struct serve *serve)
{
	fuse_session_unmount(serve->session);
}

void serve_close(struct serve *serve)
{
	if (!serve)
		return;
	if (serve->session) {
		fuse_session_unmount(serve->session);
		fuse_remove_signal_handlers(serve->session);
		fuse_session_destroy(serve->session);
	}
	serve_close_files(serve);
	pthread_key_delete(serve->buffers);
	pthread_mutex_destroy(&serve->storing);
	pthread_mutex_destroy(&serve->lock);
	free(serve);
}

unsigned serve_default_threads(void)
{
	long n = 2 * sysconf(_SC_NPROCESSORS_ONLN);

	return n < 8 ? 8 : n > 64 ? 64 : (unsigned)n;
}

const char *serve_libfuse_version(void)
{
	return fuse_pkgversion();
}

bool serve_libfuse_has_passthrough(void)
{
#ifdef FUSE_CAP_PASSTHROUGH
	return true;
#else
	return false;
#endif
}
