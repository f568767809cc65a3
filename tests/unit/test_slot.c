/*
 * test_slot.c - the budget, and who holds a slot: descriptors, and mappings that outlive theirs.
 */
#include "fs/slot.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MiB (UINT64_C(1) << 20)

static struct slots *slots;
static struct sl_error err;

static void open_slots(enum slots_kind best)
{
	cr_assert_eq(slots_open(&slots, 16 * MiB, best, &err), 0, "%s", err.text);
}

static void setup(void)
{
	open_slots(SLOTS_HUGE);
}

static void teardown(void)
{
	slots_close(slots);
}

TestSuite(slot, .init = setup, .fini = teardown);

static struct slot *open_slot(uint64_t size)
{
	struct slot *slot;

	cr_assert(slots_have_room(slots, size, NULL));
	cr_assert_eq(slot_open(&slot, slots, size, &err), 0, "%s", err.text);
	return slot;
}

Test(slot, the_budget_counts_whole_huge_pages)
{
	struct slot *a = open_slot(1), *b = open_slot(5 * MiB);

	cr_assert_eq(slots_used(slots), 8 * MiB);
	cr_assert(slots_have_room(slots, 8 * MiB, NULL));
	cr_assert(!slots_have_room(slots, 8 * MiB + 1, NULL));
	cr_assert(slots_have_room(slots, 14 * MiB, b));
	cr_assert(!slots_have_room(slots, UINT64_MAX, NULL));
	slot_close(slots, a);
	slot_close(slots, b);
	cr_assert_eq(slots_used(slots), 0);
}

Test(slot, resizing_keeps_within_the_budget)
{
	struct slot *slot = open_slot(5 * MiB);

	memset(slot->bytes, 'x', slot->size);
	cr_assert_eq(slot_resize(slots, slot, 9 * MiB + 3, &err), 0);
	cr_assert_eq(slots_used(slots), 10 * MiB);
	memset(slot->bytes, 'y', slot->size);
	cr_assert_eq(lseek(slot->fd, 0, SEEK_END), 9 * MiB + 3);
	cr_assert_eq(slot_resize(slots, slot, 100, &err), 0);
	cr_assert_eq(slots_used(slots), 2 * MiB);
	slot_close(slots, slot);
}

/* Another open of the same file, as the kernel makes one for a reader. */
static int open_again(const struct slot *slot)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", slot->fd);
	fd = open(path, O_RDONLY);
	cr_assert(fd >= 0);
	return fd;
}

static void hold_and_let_go(void)
{
	struct slot *slot = open_slot(MiB);
	void *map;
	int fd;

	cr_assert(!slot_is_held(slot), "our own mapping does not count");
	fd = open_again(slot);
	cr_assert(slot_is_held(slot));
	map = mmap(NULL, MiB, PROT_READ, MAP_PRIVATE, fd, 0);
	close(fd);
	cr_assert(slot_is_held(slot), "the mapping outlives its descriptor");
	munmap(map, MiB);
	cr_assert(!slot_is_held(slot));
	slot_close(slots, slot);
}

Test(slots, one_is_held_as_long_as_it_is_open_or_mapped)
{
	for (int best = 0; best < N_SLOTS_KINDS; best++) {
		open_slots((enum slots_kind)best);
		hold_and_let_go();
		slots_close(slots);
	}
}

Test(slots, what_they_are_made_of_is_told)
{
	open_slots(SLOTS_MEMFD);
	cr_assert_str_eq(slots_what(slots), "memfd; it was asked for");
	slots_close(slots);
}
