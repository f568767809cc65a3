/*
 * callbacks.c - libfuse's low-level callbacks over a tree: find the node, ask the tree, answer.
 *
 * An open file is a handle of the tree and the group in which it is counted, in fi->fh. Each worker thread has one buffer,
 * which its answers are made in again and again: memory that is touched for the first time costs more than the copy.
 */
#include "fs/knobs.h"
#include "fs/line.h"
#include "fs/log.h"
#include "fs/serve_impl.h"
#include "fs/xattr.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define ONE_DAY	    86400.0
#define MAX_REQUEST (1u << 20)

/* ---- the mode of a file ---- */

/* To add a mode: an id in serve.h and a row. What decides between them is mode_of() alone. */
static const struct mode_row {
	const char *name;
	bool direct_io, keep_cache;
} modes[] = {
	[SERVE_STREAMED] = { "streamed", false, true },
	[SERVE_LIVE] = { "live", true, false },
	[SERVE_PASSED] = { "passed through", false, false },
};

_Static_assert(sizeof(modes) / sizeof(modes[0]) == N_SERVE_MODES, "a row for each mode");

enum serve_mode serve_mode(const struct node *node)
{
	return node->kind == NODE_LIVE ? SERVE_LIVE : SERVE_STREAMED;
}

const char *serve_mode_name(enum serve_mode mode)
{
	return modes[mode].name;
}

/* ---- buffers ---- */

struct buffer {
	size_t size;
	_Alignas(4096) unsigned char bytes[];
};

/* This thread's buffer of at least `size` bytes, or NULL without memory. */
static void *thread_buffer(struct serve *serve, size_t size)
{
	struct buffer *buffer = pthread_getspecific(serve->buffers);

	if (buffer && buffer->size >= size)
		return buffer->bytes;
	free(buffer);
	pthread_setspecific(serve->buffers, NULL);
	size = (size > MAX_REQUEST ? size + 4095 : MAX_REQUEST) & ~(size_t)4095;
	buffer = aligned_alloc(4096, sizeof(*buffer) + size);
	if (!buffer)
		return NULL;
	buffer->size = size;
	if (pthread_setspecific(serve->buffers, buffer)) {
		free(buffer);
		return NULL;
	}
	return buffer->bytes;
}

/* ---- nodes ---- */

static struct serve *serve_of(fuse_req_t req)
{
	return fuse_req_userdata(req);
}

/* The kernel only names nodes that it has been told of, but a number may come over NFS from an earlier life. */
static struct node *node_or_reply(fuse_req_t req, fuse_ino_t ino)
{
	struct node *node = tree_by_ino(serve_of(req)->setup.tree, ino);

	if (!node)
		fuse_reply_err(req, ESTALE);
	return node;
}

static void fill_entry(const struct serve *serve, const struct node *node, struct fuse_entry_param *entry)
{
	memset(entry, 0, sizeof(*entry));
	entry->ino = node->ino;
	entry->attr_timeout = ONE_DAY;
	entry->entry_timeout = ONE_DAY;
	tree_stat(serve->setup.tree, node, &entry->attr);
}

/* Count a failed request, log it once for that file and errno, answer it. */
static void reply_failure(fuse_req_t req, struct node *node, struct stats_group *group, const struct sl_error *err)
{
	char path[4096];

	stats_failed(serve_of(req)->setup.stats, group, err->errnum);
	log_file_error(node->ino, tree_node_path(node, path, sizeof(path)), err);
	fuse_reply_err(req, err->errnum);
}

/* A name that cannot be looked up has no node: it is logged as its directory's, told apart by the name. */
static void reply_lookup_failure(fuse_req_t req, const struct node *dir, const char *name, const struct sl_error *err)
{
	char path[4096];
	size_t len = strlen(tree_node_path(dir, path, sizeof(path)));
	uint64_t key = dir->ino;

	for (const char *c = name; *c; c++)
		key = (key ^ (unsigned char)*c) * UINT64_C(0x100000001b3);
	snprintf(path + len, sizeof(path) - len, "%s%s", len ? "/" : "", name);
	stats_failed(serve_of(req)->setup.stats, NULL, err->errnum);
	log_file_error(key, path, err);
	fuse_reply_err(req, err->errnum);
}

static void on_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct serve *serve = serve_of(req);
	struct sl_error err = SL_ERROR_INIT;
	struct fuse_entry_param entry = { .entry_timeout = ONE_DAY };
	struct node *dir = node_or_reply(req, parent), *node;
	int rc;

	if (!dir)
		return;
	rc = tree_lookup(serve->setup.tree, dir, name, &node, &err);
	if (rc && rc != -ENOENT) {
		reply_lookup_failure(req, dir, name, &err);
		return;
	}
	if (!rc)
		fill_entry(serve, node, &entry);
	fuse_reply_entry(req, &entry); /* with ino 0: the name is not there, and that may be remembered too */
}

/* Nodes are never freed, so the kernel's counts of what it remembers are not kept. */
static void on_forget(fuse_req_t req, fuse_ino_t ino, uint64_t n_lookups)
{
	(void)ino, (void)n_lookups;
	fuse_reply_none(req);
}

static void on_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets)
{
	(void)count, (void)forgets;
	fuse_reply_none(req);
}

static void on_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct node *node = node_or_reply(req, ino);
	struct fuse_entry_param entry;

	(void)fi;
	if (!node)
		return;
	fill_entry(serve_of(req), node, &entry);
	fuse_reply_attr(req, &entry.attr, entry.attr_timeout);
}

static void on_statfs(fuse_req_t req, fuse_ino_t ino)
{
	const struct sl_model *model = tree_model(serve_of(req)->setup.tree);
	struct statvfs st = { .f_bsize = 4096, .f_frsize = 4096, .f_namemax = 255 };

	(void)ino;
	st.f_blocks = model->total_bytes / 4096 + (model->total_bytes % 4096 != 0);
	fuse_reply_statfs(req, &st);
}

/* ---- files ---- */

/* In a list, since no release comes for what is open when the mount ends. */
struct open_file {
	struct stage_open stage;
	struct handle handle;
	struct stats_group *group;
	fuse_req_t req; /* until it is answered, with fi */
	struct fuse_file_info fi;
	struct open_file *next, **at; /* *at is this one */
};

static struct open_file *file_of(const struct fuse_file_info *fi)
{
	return (struct open_file *)(uintptr_t)fi->fh;
}

static void enlist(struct serve *serve, struct open_file *file)
{
	pthread_mutex_lock(&serve->lock);
	file->at = &serve->files;
	file->next = serve->files;
	if (file->next)
		file->next->at = &file->next;
	serve->files = file;
	pthread_mutex_unlock(&serve->lock);
}

static void delist(struct serve *serve, struct open_file *file)
{
	pthread_mutex_lock(&serve->lock);
	*file->at = file->next;
	if (file->next)
		file->next->at = file->at;
	pthread_mutex_unlock(&serve->lock);
}

static int open_file(struct serve *serve, struct node *node, struct open_file **out, struct sl_error *err)
{
	struct open_file *file = calloc(1, sizeof(*file));
	int rc;

	if (!file)
		return sl_fail(err, ENOMEM, "no memory to open it");
	rc = handle_open(&file->handle, serve->setup.tree, node, err);
	if (rc) {
		free(file);
		return rc;
	}
	file->group = stats_opened(serve->setup.stats, node);
	enlist(serve, file);
	*out = file;
	return 0;
}

static void close_file(struct serve *serve, struct open_file *file)
{
	delist(serve, file);
	stage_end(serve->setup.stage, &file->stage);
	stats_closed(file->group);
	handle_close(&file->handle);
	free(file);
}

void serve_close_files(struct serve *serve)
{
	while (serve->files)
		close_file(serve, serve->files);
}

static enum serve_mode mode_of(const struct open_file *file)
{
	return file->stage.backing ? SERVE_PASSED : serve_mode(file->handle.node);
}

/* O_DIRECT on a file that is passed through: the file system behind it may refuse what is not aligned, so reads come
 * here, and only mappings are passed. */
static void set_backing(struct fuse_file_info *fi, int backing)
{
#ifdef FUSE_CAP_PASSTHROUGH
	fi->backing_id = backing;
#endif
	fi->direct_io |= backing && (fi->flags & O_DIRECT);
}

/* It is known how the file is served. */
static void answer_open(struct stage_open *stage)
{
	struct open_file *file = (struct open_file *)((char *)stage - offsetof(struct open_file, stage));
	struct fuse_file_info fi = file->fi;
	fuse_req_t req = file->req;
	struct serve *serve = serve_of(req);

	fi.direct_io = modes[mode_of(file)].direct_io;
	fi.keep_cache = modes[mode_of(file)].keep_cache;
	set_backing(&fi, stage->backing);
	if (stage->backing)
		stats_passed(file->group);
	if (fuse_reply_open(req, &fi)) /* interrupted: no release will come */
		close_file(serve, file);
}

/* Engines first read the header of every file, most of them through a mapping, and for the first page of one the kernel asks
 * for all of its read-ahead. So the header is put into the page cache while the file is opened for the first time: who reads
 * no more asks for nothing.
 *
 * A page that is being read is locked until the read has been answered. One thread at a time may wait for that here, so
 * that another is left to answer. */
static void store_header(struct serve *serve, struct open_file *file)
{
	struct node *node = file->handle.node;
	uint64_t size = line_index(node) < 0 ? 0 : (node->file->pieces[0].len + 4095) & ~UINT64_C(4095);
	struct fuse_bufvec bytes = FUSE_BUFVEC_INIT(0);
	struct sl_error err = SL_ERROR_INIT;
	ssize_t n;

	if (!size || size > MAX_REQUEST || file->stage.backing || node->n_opens > 1 ||
	    pthread_mutex_trylock(&serve->storing))
		return;
	bytes.buf[0].mem = thread_buffer(serve, size);
	n = bytes.buf[0].mem ? handle_read(&file->handle, bytes.buf[0].mem, 0, size, &err) : -1;
	if (n > 0) {
		bytes.buf[0].size = (size_t)n;
		fuse_lowlevel_notify_store(serve->session, node->ino, 0, &bytes, 0); /* best effort */
	}
	pthread_mutex_unlock(&serve->storing);
}

static void on_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct sl_error err = SL_ERROR_INIT;
	struct node *node = node_or_reply(req, ino);
	struct open_file *file = NULL;

	if (!node)
		return;
	if ((fi->flags & O_ACCMODE) != O_RDONLY || (fi->flags & O_TRUNC)) {
		fuse_reply_err(req, EROFS);
		return;
	}
	if (open_file(serve_of(req), node, &file, &err)) {
		reply_failure(req, node, NULL, &err);
		return;
	}
	fi->fh = (uintptr_t)file;
	fi->noflush = 1;
	file->req = req;
	file->fi = *fi;
	file->stage.decided = answer_open;
	if (stage_begin(serve_of(req)->setup.stage, &file->stage, node, file->handle.fd)) {
		store_header(serve_of(req), file);
		answer_open(&file->stage);
	}
}

/* From the file in memory when there is one: it is whole. */
static ssize_t read_file(struct serve *serve, struct open_file *file, void *buf, size_t size, uint64_t off,
			 struct sl_error *err)
{
	ssize_t n = -1;

	if (file->stage.fd >= 0 && file->handle.node->kind == NODE_FILE)
		n = pread(file->stage.fd, buf, size, (off_t)off);
	else
		stage_read(serve->setup.stage, &file->stage, off, size);
	return n >= 0 ? n : handle_read(&file->handle, buf, off, size, err);
}

static void on_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	struct sl_error err = SL_ERROR_INIT;
	struct open_file *file = file_of(fi);
	void *buf = thread_buffer(serve_of(req), size);
	ssize_t n;

	(void)ino;
	if (!buf) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	n = read_file(serve_of(req), file, buf, size, (uint64_t)off, &err);
	if (n < 0) {
		reply_failure(req, file->handle.node, file->group, &err);
		return;
	}
	stats_read(file->group, (size_t)n);
	fuse_reply_buf(req, buf, (size_t)n);
}

static void on_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	(void)ino;
	close_file(serve_of(req), file_of(fi));
	fuse_reply_err(req, 0);
}

/* ---- directories ---- */

static void on_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct sl_error err = SL_ERROR_INIT;
	struct node *dir = node_or_reply(req, ino);
	struct node *const *children;
	size_t n;

	if (!dir)
		return;
	if (tree_children(serve_of(req)->setup.tree, dir, &children, &n, &err)) {
		reply_failure(req, dir, NULL, &err);
		return;
	}
	fi->fh = (uintptr_t)dir;
	fi->keep_cache = 1;
	fi->cache_readdir = 1;
	fuse_reply_open(req, fi);
}

/* Where a listing is: offset 0 is ".", 1 "..", then the children. */
struct listing {
	struct node *dir;
	struct node *const *children;
	size_t n; /* with the two dots */
	bool plus;
};

/* Add the entry at `at`; the bytes that it needs, which are more than `cap` when it did not fit. */
static size_t add_entry(fuse_req_t req, const struct listing *listing, size_t at, char *buf, size_t cap)
{
	static const char *const dots[] = { ".", ".." };
	struct node *node = at == 0 ? listing->dir : at == 1 ? listing->dir->parent : listing->children[at - 2];
	const char *name = at < 2 ? dots[at] : node->name;
	struct fuse_entry_param entry;

	fill_entry(serve_of(req), node, &entry);
	if (!listing->plus)
		return fuse_add_direntry(req, buf, cap, name, &entry.attr, (off_t)at + 1);
	if (at < 2)
		entry.ino = 0; /* no lookup of the dots */
	return fuse_add_direntry_plus(req, buf, cap, name, &entry, (off_t)at + 1);
}

static void reply_listing(fuse_req_t req, const struct listing *listing, size_t size, off_t off)
{
	char *buf = thread_buffer(serve_of(req), size);
	size_t used = 0;

	if (!buf) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	for (size_t at = (size_t)off; at < listing->n; at++) {
		size_t len = add_entry(req, listing, at, buf + used, size - used);

		if (len > size - used)
			break;
		used += len;
	}
	fuse_reply_buf(req, buf, used);
}

static void list(fuse_req_t req, size_t size, off_t off, struct fuse_file_info *fi, bool plus)
{
	struct sl_error err = SL_ERROR_INIT;
	struct listing listing = { .dir = (struct node *)(uintptr_t)fi->fh, .plus = plus };

	if (tree_children(serve_of(req)->setup.tree, listing.dir, &listing.children, &listing.n, &err)) {
		reply_failure(req, listing.dir, NULL, &err);
		return;
	}
	listing.n += 2;
	reply_listing(req, &listing, size, off);
}

static void on_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	(void)ino;
	list(req, size, off, fi, false);
}

static void on_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	(void)ino;
	list(req, size, off, fi, true);
}

/* ---- extended attributes ---- */

static enum serve_mode mode_now(struct serve *serve, const struct node *node)
{
	return stage_passes(serve->setup.stage, node) ? SERVE_PASSED : serve_mode(node);
}

/* `size` 0 asks for the length. Frees the value. */
static void reply_value(fuse_req_t req, int rc, char *value, size_t len, size_t size)
{
	if (rc)
		fuse_reply_err(req, -rc);
	else if (!size)
		fuse_reply_xattr(req, len);
	else if (len > size)
		fuse_reply_err(req, ERANGE);
	else
		fuse_reply_buf(req, value, len);
	free(value);
}

static void on_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
	struct node *node = node_or_reply(req, ino);
	char *value = NULL;
	size_t len = 0;
	int rc;

	if (!node)
		return;
	rc = xattr_get(node, mode_now(serve_of(req), node), name, &value, &len);
	reply_value(req, rc, value, len, size);
}

static void on_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
	struct node *node = node_or_reply(req, ino);
	char *names = NULL;
	size_t len = 0;
	int rc;

	if (!node)
		return;
	rc = xattr_list(node, &names, &len);
	reply_value(req, rc, names, len, size);
}

/* ---- what would write ---- */

/* The mount is read-only and the kernel refuses these itself, unless root remounts it read-write. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
#define REFUSE(op, ...)                                      \
	static void refuse_##op(fuse_req_t req, __VA_ARGS__) \
	{                                                    \
		fuse_reply_err(req, EROFS);                  \
	}

REFUSE(setattr, fuse_ino_t ino, struct stat *attr, int to_set, struct fuse_file_info *fi)
REFUSE(create, fuse_ino_t dir, const char *name, mode_t mode, struct fuse_file_info *fi)
REFUSE(mknod, fuse_ino_t dir, const char *name, mode_t mode, dev_t device)
REFUSE(mkdir, fuse_ino_t dir, const char *name, mode_t mode)
REFUSE(unlink, fuse_ino_t dir, const char *name)
REFUSE(rmdir, fuse_ino_t dir, const char *name)
REFUSE(rename, fuse_ino_t dir, const char *name, fuse_ino_t to_dir, const char *to_name, unsigned flags)
REFUSE(link, fuse_ino_t ino, fuse_ino_t dir, const char *name)
REFUSE(symlink, const char *target, fuse_ino_t dir, const char *name)
REFUSE(setxattr, fuse_ino_t ino, const char *name, const char *value, size_t size, int flags)
REFUSE(removexattr, fuse_ino_t ino, const char *name)
#pragma GCC diagnostic pop

/* ---- the connection ---- */

#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 17)
static void want(struct fuse_conn_info *conn, uint64_t capability, bool on)
{
	if (on)
		fuse_set_feature_flag(conn, capability); /* unless the kernel has not got it */
	else
		fuse_unset_feature_flag(conn, capability);
}
#else
static void want(struct fuse_conn_info *conn, unsigned capability, bool on)
{
	conn->want &= ~capability;
	if (on)
		conn->want |= conn->capable & capability;
}
#endif

static void on_init(void *userdata, struct fuse_conn_info *conn)
{
	struct serve *serve = userdata;

	conn->max_write = MAX_REQUEST; /* of reads too: libfuse asks for as many pages a request */
	conn->max_readahead = MAX_REQUEST;
	conn->max_background = KNOBS_MAX_BACKGROUND;
	conn->congestion_threshold = KNOBS_CONGESTION;
	want(conn, FUSE_CAP_ASYNC_READ, true);
	want(conn, FUSE_CAP_PARALLEL_DIROPS, true);
	/* Nothing ever changes, so a getattr need not compare times and drop pages. AUTO would win over EXPLICIT. */
	want(conn, FUSE_CAP_AUTO_INVAL_DATA, false);
	want(conn, FUSE_CAP_EXPLICIT_INVAL_DATA, true);
#ifdef FUSE_CAP_PASSTHROUGH
	want(conn, FUSE_CAP_PASSTHROUGH, true);
	conn->max_backing_stack_depth = 0; /* an overlayfs may be put over the mount */
	serve->passthrough = fuse_get_feature_flag(conn, FUSE_CAP_PASSTHROUGH);
#else
	(void)serve;
#endif
}

const struct fuse_lowlevel_ops serve_callbacks = {
	.init = on_init,
	.lookup = on_lookup,
	.forget = on_forget,
	.forget_multi = on_forget_multi,
	.getattr = on_getattr,
	.statfs = on_statfs,
	.open = on_open,
	.read = on_read,
	.release = on_release,
	.opendir = on_opendir,
	.readdir = on_readdir,
	.readdirplus = on_readdirplus,
	.getxattr = on_getxattr,
	.listxattr = on_listxattr,
	.setattr = refuse_setattr,
	.create = refuse_create,
	.mknod = refuse_mknod,
	.mkdir = refuse_mkdir,
	.unlink = refuse_unlink,
	.rmdir = refuse_rmdir,
	.rename = refuse_rename,
	.link = refuse_link,
	.symlink = refuse_symlink,
	.setxattr = refuse_setxattr,
	.removexattr = refuse_removexattr,
};
