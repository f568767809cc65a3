/*
 * serve_impl.h - what serve.c and callbacks.c share; nobody else knows libfuse.
 */
#ifndef FS_SERVE_IMPL_H
#define FS_SERVE_IMPL_H

#include "fs/serve.h"
#include <pthread.h>
#include <stdatomic.h>

#ifndef FUSE_USE_VERSION
#define FUSE_USE_VERSION 314
#endif
#include <fuse_lowlevel.h>

struct serve {
	struct serve_setup setup;
	struct fuse_session *session;
	pthread_key_t buffers;	 /* struct buffer of each thread */
	pthread_mutex_t storing; /* a header, into the page cache */
	pthread_mutex_t lock;	 /* of files */
	struct open_file *files;
	atomic_bool passthrough; /* the kernel has said in INIT that it can */
};

/* Their userdata is a struct serve. */
extern const struct fuse_lowlevel_ops serve_callbacks;

/* Those that are still open when nobody serves any more. */
void serve_close_files(struct serve *serve);

#endif
