/*
 * xattr.c - a table of names, each with the function that prints its value.
 */
#include "fs/xattr.h"
#include "slicer/series.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_SOURCE 65000 /* the kernel takes 65,536 bytes of a value */

static bool print_dtype(const struct node *node, enum serve_mode mode, FILE *out)
{
	(void)mode;
	if (node->tensor)
		fputs(sl_dtypes[node->tensor->dtype].name, out);
	return node->tensor;
}

static bool print_shape(const struct node *node, enum serve_mode mode, FILE *out)
{
	(void)mode;
	if (!node->tensor)
		return false;
	for (unsigned i = 0; i < node->tensor->n_dims; i++)
		fprintf(out, "%s%" PRIu64, i ? "," : "", node->tensor->shape[i]);
	return true;
}

static bool print_mode(const struct node *node, enum serve_mode mode, FILE *out)
{
	if (node->kind != NODE_DIR)
		fputs(serve_mode_name(mode), out);
	return node->kind != NODE_DIR;
}

static void print_piece(const struct sl_model *model, const struct sl_piece *piece, FILE *out)
{
	const struct sl_parts parts = sl_piece_parts(piece);

	if (parts.list != piece) {
		fprintf(out, "%s(", sl_op_name(piece->op));
		for (uint32_t i = 0; i < parts.n; i++) {
			fputs(i ? " " : "", out);
			print_piece(model, &parts.list[i], out); /* no part has parts */
		}
		fputc(')', out);
		return;
	}
	if (!sl_piece_reads(piece)) {
		fprintf(out, "%s+%" PRIu64, sl_op_name(piece->op), piece->len);
		return;
	}
	fprintf(out, "%s:%" PRIu64 "+%" PRIu64, model->shards.shards[piece->shard].name, piece->src, piece->run);
	if (piece->count > 1)
		fprintf(out, "x%" PRIu32 "/%" PRIu64, piece->count, piece->stride);
}

static void print_pieces(const struct sl_model *model, const struct sl_piece *pieces, uint32_t n_pieces, FILE *out)
{
	struct sl_made_piece made;

	for (uint32_t i = 0; i < n_pieces; i++) {
		for (uint64_t j = 0; j < sl_piece_count(&pieces[i]); j++) {
			if (ftell(out) > MAX_SOURCE) {
				fprintf(out, " …");
				return;
			}
			fputs(i || j ? " " : "", out);
			print_piece(model, sl_piece_at(model, &pieces[i], j, &made), out);
		}
	}
}

static bool print_source(const struct node *node, enum serve_mode mode, FILE *out)
{
	(void)mode;
	if (node->kind == NODE_SOURCE)
		fputs(node->path, out);
	else if (node->tensor && node->view)
		print_pieces(node->view->model, node->tensor->pieces, node->tensor->n_pieces, out);
	else if (node->kind == NODE_FILE)
		print_pieces(node->file->model, node->file->pieces, node->file->n_pieces, out);
	else
		return false;
	return true;
}

/* To add an attribute: a row. The function prints the value, or returns false when the node has none. */
static const struct xattr {
	const char *name;
	bool (*print)(const struct node *node, enum serve_mode mode, FILE *out);
} xattrs[] = {
	{ "user.rankfs.dtype", print_dtype },
	{ "user.rankfs.mode", print_mode },
	{ "user.rankfs.shape", print_shape },
	{ "user.rankfs.source", print_source },
};

#define N_XATTRS (sizeof(xattrs) / sizeof(xattrs[0]))

static int value_of(const struct xattr *xattr, const struct node *node, enum serve_mode mode, char **value, size_t *len)
{
	FILE *out = open_memstream(value, len);
	bool has;

	if (!out)
		return -ENOMEM;
	has = xattr->print(node, mode, out);
	if (!fclose(out) && has)
		return 0;
	free(*value);
	*value = NULL;
	return has ? -ENOMEM : -ENODATA;
}

int xattr_get(const struct node *node, enum serve_mode mode, const char *name, char **value, size_t *len)
{
	for (size_t i = 0; i < N_XATTRS; i++)
		if (!strcmp(name, xattrs[i].name))
			return value_of(&xattrs[i], node, mode, value, len);
	return -ENODATA;
}

int xattr_list(const struct node *node, char **names, size_t *len)
{
	FILE *out = open_memstream(names, len);
	int rc = out ? 0 : -ENOMEM;

	for (size_t i = 0; i < N_XATTRS && !rc; i++) {
		char *value;
		size_t value_len;

		rc = value_of(&xattrs[i], node, SERVE_STREAMED, &value, &value_len);
		if (!rc) {
			free(value);
			fwrite(xattrs[i].name, strlen(xattrs[i].name) + 1, 1, out);
		}
		rc = rc == -ENODATA ? 0 : rc;
	}
	if (out && fclose(out))
		rc = -ENOMEM;
	if (rc && out)
		free(*names);
	return rc;
}
