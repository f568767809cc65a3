/*
 * knobs.h - what the kernel lets one set per mount, outside of FUSE's own protocol, and what came of it.
 *
 * The kernel's default read-ahead of 128 KiB makes sequential reads through FUSE 1.4 to 2 times slower and interleaved
 * page faults up to 20 times; the protocol can only lower it. /sys can raise it, for root. All of this is best effort:
 * a mount without it is right, and slower, and `rankfs status` says so.
 */
#ifndef FS_KNOBS_H
#define FS_KNOBS_H

#include <stdbool.h>
#include <stdint.h>

enum knob_id { KNOB_READ_AHEAD, KNOB_MAX_BACKGROUND, KNOB_CONGESTION, N_KNOBS };

struct knob {
	const char *name;
	uint64_t wanted; /* 0: was left alone */
	uint64_t value;	 /* in force, 0 when unknown */
	char why[200];	 /* "" when it was set; else what kept it from that, or how the value is known */
};

struct knobs {
	struct knob knobs[N_KNOBS];
};

/* Requests in flight for read-ahead, and from where on the kernel skips it: 3/4 of that. */
#define KNOBS_MAX_BACKGROUND 128
#define KNOBS_CONGESTION     96

/* Set all of them for the mount at `mountpoint`, an absolute path. To be called after the kernel has had the answer to
 * INIT, which overwrites the read-ahead, and before the first open, which copies it. */
void knobs_apply(struct knobs *knobs, const char *mountpoint, uint64_t read_ahead_kb);

#endif
