/*
 * tree_handle.c - open files of the tree: one way to read for the mount, `cat` and `export`.
 */
#include "fs/tree_impl.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void count(_Atomic uint64_t *counter, uint64_t n)
{
	atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

/* The file must still be the one that the directory showed: its size has been told. */
static int check_source(const struct node *node, int fd, struct sl_error *err)
{
	struct stat st;

	if (fstat(fd, &st))
		return sl_fail(err, errno, "%s: cannot be looked at: %s", SL_ESC(node->path), strerror(errno));
	if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != node->size)
		return sl_fail(err, ESTALE, "%s: the source changed: it had %" PRIu64 " bytes, it has %" PRIu64,
			       SL_ESC(node->path), node->size, (uint64_t)st.st_size);
	if (st.st_mtim.tv_sec != node->mtime.tv_sec || st.st_mtim.tv_nsec != node->mtime.tv_nsec)
		return sl_fail(err, ESTALE, "%s: the source was written to after it was first seen",
			       SL_ESC(node->path));
	return 0;
}

static int open_source(struct handle *handle, struct tree *tree, struct sl_error *err)
{
	int fd = source_open(tree, handle->node->path, 0, err), rc;

	if (fd < 0)
		return fd;
	rc = check_source(handle->node, fd, err);
	if (rc)
		close(fd);
	else
		handle->fd = fd;
	return rc;
}

static int open_live(struct handle *handle, struct tree *tree, struct sl_error *err)
{
	handle->text = tree->live(tree->live_context, handle->node->name);
	if (!handle->text)
		return sl_fail(err, ENOMEM, "no memory for the text of '%s'", handle->node->name);
	handle->text_len = strlen(handle->text);
	return 0;
}

static int open_kind(struct handle *handle, struct tree *tree, struct sl_error *err)
{
	switch (handle->node->kind) {
	case NODE_FILE:
		return 0;
	case NODE_SOURCE:
		return open_source(handle, tree, err);
	case NODE_TEXT:
		return text_make(&handle->text, &handle->text_len, tree, handle->node, true, err);
	case NODE_LIVE:
		return open_live(handle, tree, err);
	case NODE_DIR:
		break;
	}
	return sl_fail(err, EISDIR, "'%s' is a directory", SL_ESC(handle->node->name));
}

int handle_open(struct handle *handle, struct tree *tree, struct node *node, struct sl_error *err)
{
	int rc;

	*handle = (struct handle){ .node = node, .fd = -1 };
	rc = open_kind(handle, tree, err);
	count(rc ? &node->n_errors : &node->n_opens, 1);
	return rc;
}

/* All of it, or an error: a short count would mean the end of the file. */
static ssize_t read_source(const struct handle *handle, char *buf, uint64_t off, size_t len, struct sl_error *err)
{
	const struct node *node = handle->node;
	size_t done = 0;
	int rc;

	if (off >= node->size)
		return 0;
	len = len < node->size - off ? len : node->size - off;
	while (done < len) {
		ssize_t got = pread(handle->fd, buf + done, len - done, (off_t)(off + done));

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return sl_fail(err, errno, "%s: cannot be read: %s", SL_ESC(node->path), strerror(errno));
		if (got == 0)
			break;
		done += (size_t)got;
	}
	rc = check_source(node, handle->fd, err);
	if (rc == 0 && done < len)
		rc = sl_fail(err, EIO, "%s: ends %zu bytes too early", SL_ESC(node->path), len - done);
	return rc ? rc : (ssize_t)len;
}

static ssize_t read_text(const struct handle *handle, char *buf, uint64_t off, size_t len)
{
	if (off >= handle->text_len)
		return 0;
	len = len < handle->text_len - off ? len : handle->text_len - off;
	memcpy(buf, handle->text + off, len);
	return (ssize_t)len;
}

ssize_t handle_read(struct handle *handle, void *buf, uint64_t off, size_t len, struct sl_error *err)
{
	struct node *node = handle->node;
	ssize_t got;

	if (node->kind == NODE_FILE)
		got = sl_file_read(node->file, buf, off, len, err);
	else if (node->kind == NODE_SOURCE)
		got = read_source(handle, buf, off, len, err);
	else
		got = read_text(handle, buf, off, len);
	count(&node->n_reads, 1);
	if (got < 0)
		count(&node->n_errors, 1);
	else
		count(&node->bytes_read, (uint64_t)got);
	return got;
}

void handle_close(struct handle *handle)
{
	if (handle->fd >= 0)
		close(handle->fd);
	free(handle->text);
	*handle = (struct handle){ .fd = -1 };
}
