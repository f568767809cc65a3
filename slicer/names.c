/*
 * names.c - what engines without rules of their own call their weight files, and what their headers say of themselves.
 */
#include "slicer/plan.h"
#include "slicer/text.h"

/* vLLM's loader looks for these (sharded_state_loader.py). */
char *sl_name_vllm(const struct sl_plan *plan, uint32_t i, uint32_t n)
{
	struct sl_view *view = plan->view;

	(void)n;
	if (view->layout.pp > 1)
		return sl_arena_printf(&view->arena, "model-pp-%u-tp-%u-part-%u.safetensors", view->stage, view->rank,
				       i);
	return sl_arena_printf(&view->arena, "model-rank-%u-part-%u.safetensors", view->rank, i);
}

char *sl_name_hf(const struct sl_plan *plan, uint32_t i, uint32_t n)
{
	return sl_arena_printf(&plan->view->arena, "model-%05u-of-%05u.safetensors", i + 1, n);
}

/* transformers wants to know which framework wrote a file. */
void sl_metadata_format(const struct sl_plan *plan, struct sl_output *const *tensors, uint32_t n, struct sl_text *text)
{
	(void)plan, (void)tensors, (void)n;
	sl_text_printf(text, "\"__metadata__\":{\"format\":\"pt\"}");
}
