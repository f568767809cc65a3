/*
 * file.c - a loop over extents.
 */
#include "slicer/file.h"

#include <errno.h>

struct sl_extent sl_file_map(const struct sl_file *file, uint64_t off, uint64_t len)
{
	uint32_t low = 0, high = file->n_pieces;

	if (off >= file->size)
		return (struct sl_extent){ 0 };
	while (high - low > 1) {
		uint32_t middle = low + (high - low) / 2;
		if (file->pieces[middle].off <= off)
			low = middle;
		else
			high = middle;
	}
	const struct sl_piece *piece = &file->pieces[low];
	uint64_t skip = off - piece->off, left = piece->len - skip;
	return (struct sl_extent){ piece, skip, left < len ? left : len };
}

ssize_t sl_file_read(const struct sl_file *file, void *buf, uint64_t off, size_t len, struct sl_error *err)
{
	unsigned char *dst = buf;
	size_t done = 0;

	while (done < len) {
		struct sl_extent extent = sl_file_map(file, off + done, len - done);
		if (extent.len == 0)
			break;
		int ret = sl_piece_read(file->model, extent.piece, extent.skip, extent.len, dst + done, err);
		if (ret) {
			sl_error_prefix(err, "%s", file->name);
			return ret;
		}
		done += extent.len;
	}
	return (ssize_t)done;
}
