/*
 * npy.c - one tensor as a .npy file (format version 1.0 of numpy.lib.format): magic, a dictionary padded with spaces so that
 * the data begins at a multiple of 64, then the tensor's own pieces.
 */
#include "slicer/text.h"
#include "slicer/view.h"

#include <errno.h>
#include <string.h>

/* What numpy has no type for is shown as words of the same width; elements below a byte as bytes. */
static const char *descr(enum sl_dtype dtype)
{
	const struct sl_dtype_row *row = &sl_dtypes[dtype];

	return row->numpy ? row->numpy : row->bits == 16 ? "<u2" : "|u1";
}

static void write_shape(struct sl_text *text, const struct sl_output *tensor)
{
	if (sl_dtypes[tensor->dtype].bits % 8) {
		sl_text_printf(text, "%llu,", (unsigned long long)tensor->len);
		return;
	}
	for (unsigned d = 0; d < tensor->n_dims; d++)
		sl_text_printf(text, "%s%llu%s", d ? ", " : "", (unsigned long long)tensor->shape[d],
			       tensor->n_dims == 1 ? "," : "");
}

static void write_header(struct sl_text *text, const struct sl_output *tensor)
{
	static const char magic[] = "\x93NUMPY\x01";

	sl_text_printf(text, "%s...{'descr': '%s', 'fortran_order': False, 'shape': (", magic, descr(tensor->dtype));
	write_shape(text, tensor);
	sl_text_printf(text, "), }");
	while (text->len % 64 != 63)
		sl_text_printf(text, " ");
	sl_text_printf(text, "\n");
	if (text->failed)
		return;
	text->bytes[7] = 0;
	text->bytes[8] = (char)(text->len - 10);
	text->bytes[9] = (char)((text->len - 10) >> 8);
}

int sl_view_npy(const struct sl_view *view, const struct sl_output *tensor, struct sl_arena *arena,
		struct sl_file *file, struct sl_error *err)
{
	struct sl_text text = SL_TEXT_INIT;
	struct sl_piece *pieces = sl_arena_array(arena, tensor->n_pieces + 1u, sizeof(*pieces));

	write_header(&text, tensor);
	char *header = text.failed ? NULL : sl_arena_strndup(arena, text.bytes, text.len);
	uint64_t len = text.len;
	sl_text_release(&text);
	if (!header || !pieces)
		return sl_fail(err, ENOMEM, "out of memory");
	pieces[0] = (struct sl_piece){ .len = len, .data = (const unsigned char *)header, .op = SL_OP_DATA };
	for (uint32_t i = 0; i < tensor->n_pieces; i++) {
		pieces[i + 1] = tensor->pieces[i];
		pieces[i + 1].off = tensor->pieces[i].off - tensor->off + len;
	}
	*file = (struct sl_file){ .name = tensor->name,
				  .size = len + tensor->len,
				  .model = view->model,
				  .pieces = pieces,
				  .n_pieces = tensor->n_pieces + 1 };
	return 0;
}
