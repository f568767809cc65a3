/*
 * usual.h - the layouts of one node that listings, `plan` and `sizes` look at. Any other one works by its name.
 */
#ifndef FS_USUAL_H
#define FS_USUAL_H

#include "slicer/view.h"

enum { N_USUAL_LAYOUTS = 5 };

/* tp1, tp2, tp4, tp8, tp16. */
static inline struct sl_layout usual_layout(unsigned i)
{
	return (struct sl_layout){ .tp = 1u << i, .pp = 1, .experts = SL_EXPERTS_SLICED, .dtype = -1 };
}

/* How many of them are worth asking about: an engine without layouts has the first alone, which is all of the model, and one
 * that cannot hold that cannot hold a share either. */
static inline unsigned n_usual_layouts(const struct sl_model *model, const struct sl_engine *engine)
{
	struct sl_error unused = SL_ERROR_INIT;
	struct sl_layout first = usual_layout(0);

	return !engine->ranks || sl_layout_check(model, engine, &first, &unused) ? 1 : N_USUAL_LAYOUTS;
}

#endif
