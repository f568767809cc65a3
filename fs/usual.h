/*
 * usual.h - the layouts of one node that listings, `plan` and `sizes` look at. Any other one works by its name.
 */
#ifndef FS_USUAL_H
#define FS_USUAL_H

#include "slicer/layout.h"

enum { N_USUAL_LAYOUTS = 5 };

/* tp1, tp2, tp4, tp8, tp16. */
static inline struct sl_layout usual_layout(unsigned i)
{
	return (struct sl_layout){ .tp = 1u << i, .pp = 1, .experts = SL_EXPERTS_SLICED, .dtype = -1 };
}

#endif
