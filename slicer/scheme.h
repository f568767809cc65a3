/*
 * scheme.h - quantisation schemes by the name that a configuration gives them: which work, which are refused and why.
 */
#ifndef SLICER_SCHEME_H
#define SLICER_SCHEME_H

#include "slicer/config.h"
#include "slicer/error.h"

struct sl_scheme {
	const char *method; /* quant_method of quantization_config, or how the format is recognised */
	const char *title;
	const char *refused; /* why not; NULL: it works */
};

extern const struct sl_scheme sl_schemes[];
extern const unsigned sl_n_schemes;

/* The scheme that the checkpoint in `dirfd` says it has: quantization_config (top level, then text_config), else one of
 * the quantiser's own files. -EINVAL with a sentence when it is refused or unknown. */
int sl_scheme_find(const struct sl_scheme **out, const struct sl_config *config, int dirfd, struct sl_error *err) SL_MUST_CHECK;

#endif
