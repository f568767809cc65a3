/*
 * fuzz_options.c - any argument of -o is taken or refused with one line; what is taken for the mount stays within bounds.
 */
#include "fs/options.c" /* fuzz targets are linked with the slicer only */
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int rc, const struct options *options, const struct sl_error *err)
{
	if ((rc != 0) != (err->errnum != 0) || strchr(err->text, '\n'))
		abort();
	if (strlen(options->mount) >= sizeof(options->mount) || options->tp > SL_RANKS_MAX)
		abort();
	(void)options_for_tree(options, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct sl_error err = SL_ERROR_INIT;
	struct options options;
	char *text = malloc(size + 1);
	int rc;

	if (!text)
		return 0;
	memcpy(text, data, size);
	text[size] = '\0';
	options_init(&options);
	rc = options_parse(&options, text, &err);
	check(rc, &options, &err);
	if (!rc) {
		rc = options_parse(&options, text, &err); /* the same again contradicts nothing, but may be too long */
		check(rc, &options, &err);
	}
	free(text);
	return 0;
}
