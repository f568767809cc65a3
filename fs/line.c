/*
 * line.c - prediction for one rank: see line.h.
 */
#include "fs/line.h"
#include <stdlib.h>
#include <string.h>

#define TOO_FAST 40 /* bytes per ns that nobody reads at: who opens the next file sooner has not read this one */

struct line *line_new(const struct sl_view *view)
{
	struct line *line = calloc(1, sizeof(*line) + view->n_weights * sizeof(line->parts[0]));

	if (!line)
		return NULL;
	line->view = view;
	line->n_parts = view->n_weights;
	for (uint32_t i = 0; i < line->n_parts; i++)
		line->parts[i].line = line;
	return line;
}

uint32_t part_index(const struct part *part)
{
	return (uint32_t)(part - part->line->parts);
}

const struct sl_file *part_file(const struct part *part)
{
	return &part->line->view->files[part_index(part)];
}

int64_t line_index(const struct node *node)
{
	const struct sl_view *view = node->view;

	if (node->kind != NODE_FILE || !view || node->file < view->files || node->file >= view->files + view->n_weights)
		return -1;
	return node->file - view->files;
}

void line_read(struct line *line, uint32_t index, uint64_t now)
{
	line->active = true;
	line->pos = index;
	line->opened = now;
	line->seen = now;
}

bool line_opened(struct line *line, uint32_t index, uint64_t now)
{
	bool foreseen = line->active && index == line->pos + 1 &&
			now - line->opened >= line->view->files[line->pos].size / TOO_FAST;

	if (foreseen) {
		line->pos = index;
		line->opened = now;
		line->seen = now;
	}
	return foreseen;
}

bool line_claims(const struct line *line, uint32_t index, uint64_t now)
{
	return line->active && now < line->seen + LINE_IDLE_NS && index > line->pos && index <= line->pos + LINE_AHEAD;
}

int64_t line_wants(const struct line *line, uint64_t max, uint64_t now)
{
	for (uint32_t i = line->pos + 1; i < line->n_parts && line_claims(line, i, now); i++)
		if (line->parts[i].state == PART_EMPTY && !line->parts[i].n_opens && line->view->files[i].size <= max)
			return i;
	return -1;
}

bool line_is_beside(const struct line *a, const struct line *b)
{
	char x[SL_LAYOUT_NAME_MAX], y[SL_LAYOUT_NAME_MAX];

	return a->view->engine == b->view->engine && a->view->stage == b->view->stage &&
	       !strcmp(sl_layout_format(&a->view->layout, x), sl_layout_format(&b->view->layout, y));
}
