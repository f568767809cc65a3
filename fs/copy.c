/*
 * copy.c - the bytes of a file of the tree, in order, by the shortest way for each part of it.
 *
 * Copies inside the kernel do not pass the checks that reading makes, so that the source has not changed: after
 * each one its last byte is read in the ordinary way, which makes them.
 */
#include "fs/copy.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
	BUFFER = 1 << 20,
	KERNEL_MIN = 1 << 20, /* shorter runs are not worth a call of their own */
	KERNEL_STEP = 64 << 20,
	PIPE_SIZE = 1 << 20,
};

int copier_init(struct copier *copier, int out, struct sl_error *err)
{
	*copier = (struct copier){ .out = -1, .buf = aligned_alloc(4096, BUFFER) };
	if (!copier->buf)
		return sl_fail(err, ENOMEM, "no memory for a buffer");
	copier_set_out(copier, out);
	return 0;
}

void copier_set_out(struct copier *copier, int out)
{
	struct stat st = { 0 };

	copier->out = out;
	/* What cannot be looked at is written to like everything that is neither. */
	if (out >= 0 && fstat(out, &st))
		st.st_mode = 0;
	copier->to_pipe = S_ISFIFO(st.st_mode);
	copier->to_file = S_ISREG(st.st_mode);
	copier->in_kernel = copier->to_pipe || copier->to_file;
	/* A larger pipe means fewer switches between the two sides; the default works as well. */
	if (copier->to_pipe && fcntl(out, F_GETPIPE_SZ) < PIPE_SIZE)
		(void)fcntl(out, F_SETPIPE_SZ, PIPE_SIZE);
}

void copier_release(struct copier *copier)
{
	free(copier->buf);
	copier->buf = NULL;
}

static int fail_write(struct sl_error *err)
{
	return errno == EPIPE ? -EPIPE : sl_fail(err, errno, "cannot be written: %s", strerror(errno));
}

static int write_all(int fd, const unsigned char *buf, size_t len, struct sl_error *err)
{
	while (len > 0) {
		ssize_t n = write(fd, buf, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return fail_write(err);
		buf += n;
		len -= (size_t)n;
	}
	return 0;
}

/* A run of the output that equals a run of some open file. */
struct plain {
	int fd;
	uint64_t off, len; /* len 0: there is none */
};

static struct plain plain_run(const struct handle *handle, uint64_t off)
{
	const struct node *node = handle->node;
	struct sl_extent extent;
	const struct sl_piece *p;

	if (node->kind == NODE_SOURCE)
		return (struct plain){ handle->fd, off, node->size - off };
	if (node->kind != NODE_FILE)
		return (struct plain){ 0 };
	extent = sl_file_map(node->file, off, node->size - off);
	p = extent.piece;
	if (extent.len == 0 || p->op != SL_OP_COPY || (p->count > 1 && p->run != p->stride))
		return (struct plain){ 0 };
	return (struct plain){ node->file->model->shards.shards[p->shard].fd, p->src + extent.skip, extent.len };
}

static ssize_t kernel_copy(const struct copier *copier, const struct plain *plain)
{
	size_t len = plain->len < KERNEL_STEP ? plain->len : KERNEL_STEP;
	loff_t off = (loff_t)plain->off;

	if (copier->to_pipe)
		return splice(plain->fd, &off, copier->out, NULL, len, SPLICE_F_MOVE | SPLICE_F_MORE);
	return copy_file_range(plain->fd, &off, copier->out, NULL, len, 0);
}

/* Bytes that the kernel has copied; 0: it is to be done through the buffer. */
static ssize_t copy_plain(struct copier *copier, struct handle *handle, uint64_t off, struct sl_error *err)
{
	struct plain plain = plain_run(handle, off);
	unsigned char last;
	ssize_t n, got;

	if (!copier->in_kernel || plain.len < KERNEL_MIN)
		return 0;
	n = kernel_copy(copier, &plain);
	if (n < 0 && (errno == EPIPE || errno == ENOSPC || errno == EDQUOT || errno == EIO || errno == EFBIG))
		return fail_write(err);
	if (n <= 0) {
		copier->in_kernel = n < 0 && errno == EINTR;
		return 0;
	}
	got = handle_read(handle, &last, off + (uint64_t)n - 1, 1, err);
	return got < 0 ? got : n;
}

static ssize_t copy_buffer(struct copier *copier, struct handle *handle, uint64_t off, struct sl_error *err)
{
	ssize_t n = handle_read(handle, copier->buf, off, BUFFER, err);
	int rc = n > 0 ? write_all(copier->out, copier->buf, (size_t)n, err) : 0;

	return rc ? rc : n;
}

int copier_run(struct copier *copier, struct handle *handle, struct sl_error *err)
{
	uint64_t off = 0;
	ssize_t n;

	for (;; off += (uint64_t)n) {
		n = copy_plain(copier, handle, off, err);
		if (n == 0)
			n = copy_buffer(copier, handle, off, err);
		if (n <= 0)
			return (int)n;
		if (copier->progress && !copier->progress(copier->context, (uint64_t)n))
			return -ECANCELED;
	}
}
