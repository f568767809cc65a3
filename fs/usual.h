/*
 * usual.h - the layouts of one node that listings, `plan` and `sizes` look at. Any other one works by its name.
 */
#ifndef FS_USUAL_H
#define FS_USUAL_H

#include "fs/options.h"
#include "slicer/process.h"
#include "slicer/view.h"
#include <string.h>

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

	sl_process_settle(model, engine, &first);
	return !engine->ranks || sl_layout_check(model, engine, &first, &unused) ? 1 : N_USUAL_LAYOUTS;
}

/* Is it the engine with that name, or one inside its directory ("hf/layers" in "hf")? */
static inline bool is_or_is_inside(const struct sl_engine *engine, const char *name)
{
	size_t len = strlen(name);

	return strncmp(engine->name, name, len) == 0 && (engine->name[len] == '\0' || engine->name[len] == '/');
}

/* The layouts of an engine that a summary tells about: what the options ask for, else the usual ones, older releases left out.
 * Returns how many. */
static inline unsigned summary_layouts(const struct options *options, const struct sl_model *model,
				       const struct sl_engine *engine, struct sl_layout layouts[N_USUAL_LAYOUTS])
{
	unsigned n;

	if (options->engine ? !is_or_is_inside(engine, sl_engines[options->engine - 1].name) : engine->older)
		return 0;
	if (options->tp && engine->ranks) {
		layouts[0] = SL_LAYOUT_WHOLE;
		layouts[0].tp = (unsigned)options->tp;
		sl_process_settle(model, engine, &layouts[0]);
		return 1;
	}
	n = n_usual_layouts(model, engine);
	for (unsigned i = 0; i < n; i++) {
		layouts[i] = usual_layout(i);
		sl_process_settle(model, engine, &layouts[i]);
	}
	return n;
}

#endif
