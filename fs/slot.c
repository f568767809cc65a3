/*
 * slot.c - a detached tmpfs, or memfds where that cannot be had, and files in it.
 */
#include "fs/slot.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <unistd.h>

#define HUGE_PAGE (UINT64_C(2) << 20)

#define THP_SETTING "/sys/kernel/mm/transparent_hugepage/shmem_enabled"

struct slots {
	int dir; /* of the tmpfs; -1: memfds */
	char what[200];
	uint64_t budget, used;
};

static const char *const descriptions[N_SLOTS_KINDS] = {
	[SLOTS_HUGE] = "tmpfs with huge pages",
	[SLOTS_TMPFS] = "tmpfs",
	[SLOTS_MEMFD] = "memfd",
};

/* ---- the tmpfs ---- */

/* A tmpfs that is mounted nowhere: its root directory, or -1. It has no limit of its own, the budget is kept here. */
static int open_tmpfs(const char *huge)
{
	int fs = fsopen("tmpfs", FSOPEN_CLOEXEC), dir = -1;

	if (fs < 0)
		return -1;
	if (!fsconfig(fs, FSCONFIG_SET_STRING, "size", "0", 0) &&
	    !fsconfig(fs, FSCONFIG_SET_STRING, "mode", "0700", 0) &&
	    (!huge || !fsconfig(fs, FSCONFIG_SET_STRING, "huge", huge, 0)) &&
	    !fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0))
		dir = fsmount(fs, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
	close(fs);
	return dir;
}

/* Has somebody forbidden huge pages of all files in memory? A tmpfs could be made all the same. */
static bool are_denied(void)
{
	FILE *file = fopen(THP_SETTING, "re");
	char line[128] = "";
	bool denied = file && fgets(line, sizeof(line), file) && strstr(line, "[deny]");

	if (file)
		fclose(file);
	return denied;
}

/* A directory of that kind, or -1 and why not. */
static int open_kind(enum slots_kind kind, char *why, size_t size)
{
	int dir;

	if (kind == SLOTS_HUGE && are_denied()) {
		snprintf(why, size, "; huge pages are denied in " THP_SETTING);
		return -1;
	}
	dir = open_tmpfs(kind == SLOTS_HUGE ? "always" : NULL);
	if (dir < 0)
		snprintf(why, size, "; no %s: %s", descriptions[kind], strerror(errno));
	return dir;
}

static void open_memory(struct slots *slots, enum slots_kind best)
{
	enum slots_kind kind = best;
	char why[160] = "";

	if (best)
		snprintf(why, sizeof(why), "; it was asked for");
	slots->dir = -1;
	while (kind < SLOTS_MEMFD && (slots->dir = open_kind(kind, why, sizeof(why))) < 0)
		kind++;
	snprintf(slots->what, sizeof(slots->what), "%s%s", descriptions[kind], why);
}

/* Opened once more: the kernel does not count the first open of a memfd, and would never lease it (slot_is_held()). */
static int open_memfd(void)
{
	int first = memfd_create("rankfs", MFD_CLOEXEC), fd;
	char path[64];

	if (first < 0)
		return -1;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", first);
	fd = open(path, O_RDWR | O_CLOEXEC);
	close(first);
	return fd;
}

static int open_file(const struct slots *slots)
{
	if (slots->dir < 0)
		return open_memfd();
	return openat(slots->dir, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
}

int slots_open(struct slots **out, uint64_t budget, enum slots_kind best, struct sl_error *err)
{
	struct slots *slots = calloc(1, sizeof(*slots));

	*out = slots;
	if (!slots)
		return sl_fail(err, ENOMEM, "no memory to stage files");
	slots->budget = budget;
	open_memory(slots, best);
	return 0;
}

void slots_close(struct slots *slots)
{
	if (!slots)
		return;
	if (slots->dir >= 0)
		close(slots->dir);
	free(slots);
}

const char *slots_what(const struct slots *slots)
{
	return slots->what;
}

uint64_t slots_budget(const struct slots *slots)
{
	return slots->budget;
}

uint64_t slots_used(const struct slots *slots)
{
	return slots->used;
}

static uint64_t capacity_of(uint64_t size)
{
	return (size + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1);
}

bool slots_have_room(const struct slots *slots, uint64_t size, const struct slot *old)
{
	uint64_t used = slots->used - (old ? old->capacity : 0);

	return size <= slots->budget && capacity_of(size) <= slots->budget - used;
}

/* ---- one slot ---- */

bool slot_fits(const struct slot *slot, uint64_t size)
{
	return slot->capacity == capacity_of(size);
}

static int map(struct slot *slot, uint64_t size, struct sl_error *err)
{
	void *bytes;

	/* Even to the size that it has, this would split the last huge page. */
	if (slot->size != size && ftruncate(slot->fd, (off_t)size))
		return sl_fail(err, errno, "no memory for a file of %" PRIu64 " bytes: %s", size, strerror(errno));
	slot->size = size;
	if (slot->bytes && slot_fits(slot, size))
		return 0;
	if (slot->bytes)
		munmap(slot->bytes, slot->capacity);
	slot->bytes = NULL;
	slot->capacity = capacity_of(size);
	bytes = mmap(NULL, slot->capacity, PROT_READ | PROT_WRITE, MAP_SHARED, slot->fd, 0);
	if (bytes == MAP_FAILED)
		return sl_fail(err, errno, "cannot map a file of %" PRIu64 " bytes: %s", size, strerror(errno));
	madvise(bytes, slot->capacity, MADV_HUGEPAGE); /* memfds; advice */
	slot->bytes = bytes;
	return 0;
}

static void release(struct slot *slot)
{
	if (slot->bytes)
		munmap(slot->bytes, slot->capacity);
	if (slot->fd >= 0)
		close(slot->fd);
	free(slot);
}

int slot_open(struct slot **out, struct slots *slots, uint64_t size, struct sl_error *err)
{
	struct slot *slot = calloc(1, sizeof(*slot));
	int rc;

	*out = NULL;
	if (!slot)
		return sl_fail(err, ENOMEM, "no memory for a slot");
	slot->fd = open_file(slots);
	rc = slot->fd < 0 ? sl_fail(err, errno, "cannot make a file in memory: %s", strerror(errno))
			  : map(slot, size, err);
	if (rc) {
		release(slot);
		return rc;
	}
	slots->used += slot->capacity;
	*out = slot;
	return 0;
}

int slot_resize(struct slots *slots, struct slot *slot, uint64_t size, struct sl_error *err)
{
	int rc;

	slots->used -= slot->capacity;
	rc = map(slot, size, err);
	if (rc)
		release(slot);
	else
		slots->used += slot->capacity;
	return rc;
}

void slot_close(struct slots *slots, struct slot *slot)
{
	slots->used -= slot->capacity;
	release(slot);
}

/* A write lease on our descriptor is given exactly when no other open file and no mapping of one exists. It is given
 * back at once: nobody can open the file but through us. */
bool slot_is_held(const struct slot *slot)
{
	if (fcntl(slot->fd, F_SETLEASE, F_WRLCK))
		return true;
	fcntl(slot->fd, F_SETLEASE, F_UNLCK);
	return false;
}
