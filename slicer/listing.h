/*
 * listing.h - several names in one message: the first five, and how many more.
 */
#ifndef SLICER_LISTING_H
#define SLICER_LISTING_H

#include <stddef.h>
#include <stdint.h>

struct sl_listing {
	char text[700]; /* 'a', 'b' (why) and 3 more */
	size_t len;
	uint32_t n; /* names added */
};

#define SL_LISTING_INIT  \
	{                \
		"", 0, 0 \
	}

/* Add an untrusted name and, unless it is NULL, a remark in brackets. */
void sl_listing_add(struct sl_listing *listing, const char *name, const char *remark);

/* The text, to be asked for once, after the last name. */
const char *sl_listing_text(struct sl_listing *listing);

#endif
