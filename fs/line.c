/*
 * line.c - prediction for one rank: see line.h.
 */
#include "fs/line.h"
#include <stdlib.h>

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

/* How many parts after the one opened last: the first follows the last, for whoever loads a model loads it again. */
static uint32_t distance(const struct line *line, uint32_t index)
{
	return (index + line->n_parts - line->pos) % line->n_parts;
}

bool line_opened(struct line *line, uint32_t index, uint64_t now)
{
	bool foreseen = line->active && distance(line, index) == 1 &&
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
	uint32_t ahead = distance(line, index);

	return line->active && now < line->seen + LINE_IDLE_NS && ahead > 0 && ahead <= LINE_AHEAD;
}

bool line_wants(const struct line *line, uint32_t index, uint64_t max, uint64_t now)
{
	const struct part *part = &line->parts[index];

	return line_claims(line, index, now) && part->state == PART_EMPTY && !part->n_opens &&
	       part_file(part)->size <= max;
}

struct part *line_first_wanted(struct line *line, uint64_t max, uint64_t now)
{
	for (uint32_t ahead = 1; ahead <= LINE_AHEAD; ahead++) {
		uint32_t index = (line->pos + ahead) % line->n_parts;

		if (line_wants(line, index, max, now))
			return &line->parts[index];
	}
	return NULL;
}

uint32_t line_ahead(const struct part *part)
{
	return distance(part->line, part_index(part));
}

bool line_is_beside(const struct line *a, const struct line *b)
{
	return a->view->engine == b->view->engine && a->view->stage == b->view->stage &&
	       sl_layout_equal(&a->view->layout, &b->view->layout);
}
