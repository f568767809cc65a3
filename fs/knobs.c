/*
 * knobs.c - a table of files below /sys, written and read back.
 */
#include "fs/knobs.h"
#include "fs/mountinfo.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* To add a knob: an id in knobs.h and a row. A bdi is named by both numbers of the device, a connection by the minor. */
static const struct knob_row {
	const char *name, *dir, *file;
	bool by_major; /* the directory between is MAJ:MIN, else MIN */
	bool in_init;  /* has been asked for in the answer to INIT as well */
	uint64_t wanted;
} rows[N_KNOBS] = {
	[KNOB_READ_AHEAD] = { "ra_kb", "/sys/class/bdi", "read_ahead_kb", true, false, 0 },
	[KNOB_MAX_BACKGROUND] = { "max_background", "/sys/fs/fuse/connections", "max_background", false, true,
				  KNOBS_MAX_BACKGROUND },
	[KNOB_CONGESTION] = { "congestion_threshold", "/sys/fs/fuse/connections", "congestion_threshold", false, true,
			      KNOBS_CONGESTION },
};

static const char *knob_path(const struct knob_row *row, unsigned major, unsigned minor, char *path, size_t size)
{
	if (row->by_major)
		snprintf(path, size, "%s/%u:%u/%s", row->dir, major, minor, row->file);
	else
		snprintf(path, size, "%s/%u/%s", row->dir, minor, row->file);
	return path;
}

static int write_number(const char *path, uint64_t value)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	int rc;

	if (fd < 0)
		return -errno;
	rc = dprintf(fd, "%" PRIu64 "\n", value) < 0 ? -errno : 0;
	close(fd);
	return rc;
}

static uint64_t read_number(const char *path)
{
	char text[32] = "";
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return 0;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	return n > 0 ? strtoull(text, NULL, 10) : 0;
}

static void apply(struct knob *knob, const struct knob_row *row, const char *path)
{
	int rc = knob->wanted ? write_number(path, knob->wanted) : 0;

	knob->value = read_number(path);
	if (rc == -ENOENT && row->in_init) {
		knob->value = knob->wanted;
		snprintf(knob->why, sizeof(knob->why), "as asked for in INIT; there is no %s", path);
	} else if (rc) {
		snprintf(knob->why, sizeof(knob->why), "wanted %" PRIu64 "; %s: %s", knob->wanted, path, strerror(-rc));
	} else if (knob->wanted && knob->value != knob->wanted) {
		snprintf(knob->why, sizeof(knob->why), "wanted %" PRIu64 ", but the kernel limits it", knob->wanted);
	}
}

void knobs_apply(struct knobs *knobs, const char *mountpoint, uint64_t read_ahead_kb)
{
	struct sl_error err = SL_ERROR_INIT;
	struct mountinfo info;
	int rc = mountinfo_find(mountpoint, &info, &err);
	char path[128];

	memset(knobs, 0, sizeof(*knobs));
	for (int i = 0; i < N_KNOBS; i++) {
		struct knob *knob = &knobs->knobs[i];

		knob->name = rows[i].name;
		knob->wanted = i == KNOB_READ_AHEAD ? read_ahead_kb : rows[i].wanted;
		if (rc)
			snprintf(knob->why, sizeof(knob->why), "%.*s", (int)sizeof(knob->why) - 1, err.text);
		else
			apply(knob, &rows[i], knob_path(&rows[i], info.major, info.minor, path, sizeof(path)));
	}
}
