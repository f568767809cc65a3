/*
 * listing.c - names in a buffer of fixed size: what does not fit is counted.
 */
#include "slicer/listing.h"

#include "slicer/error.h"

#include <stdio.h>

enum { NAMES_SHOWN = 5, NAME_ROOM = 128 };

void sl_listing_add(struct sl_listing *listing, const char *name, const char *remark)
{
	char shown[NAME_ROOM];
	size_t room = sizeof(listing->text) - listing->len;

	if (listing->n++ >= NAMES_SHOWN)
		return;
	/* Two thirds of a kilobyte hold five names; remarks may be cut. */
	int n = snprintf(listing->text + listing->len, room, "%s'%s'%s%s%s", listing->n > 1 ? ", " : "",
			 sl_escape(shown, sizeof(shown), name, __builtin_strlen(name)), remark ? " (" : "",
			 remark ? remark : "", remark ? ")" : "");
	listing->len += n < 0 ? 0 : (size_t)n < room ? (size_t)n : room - 1;
}

const char *sl_listing_text(struct sl_listing *listing)
{
	if (listing->n > NAMES_SHOWN)
		snprintf(listing->text + listing->len, sizeof(listing->text) - listing->len, " and %u more",
			 listing->n - NAMES_SHOWN);
	return listing->text;
}
