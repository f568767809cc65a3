/*
 * slot.h - memory that files are materialised in: a budget, and the files of a private tmpfs that live within it.
 *
 * A slot is a file without a name, mapped here for filling; what backs a passthrough file must be a file. The tmpfs is
 * attached nowhere (fsmount(2)), so nothing of it is left when the process ends, however it ends, but for what readers
 * still have open or mapped. Pages are huge where the kernel has them. Where no tmpfs can be had, slots are memfds.
 *
 * A mapping outlives the descriptor that it was made from, so only the kernel knows whether anybody still reads a slot:
 * slot_is_held() asks it. Slots are given to new files without freeing their pages, since to touch memory for the first
 * time costs more than to copy into it.
 *
 * Nothing here locks: the caller does.
 */
#ifndef FS_SLOT_H
#define FS_SLOT_H

#include "slicer/error.h"
#include <stdbool.h>
#include <stdint.h>

struct slots;

struct slot {
	int fd;		      /* the only one: read-write */
	unsigned char *bytes; /* `size` of them may be touched */
	uint64_t size;	      /* of the file */
	uint64_t capacity;    /* what it costs of the budget: the size in whole huge pages */
	int backing;	      /* the caller's: what the kernel calls this file, 0 before it has been told */
};

/* What slots can be files of, the best first. */
enum slots_kind { SLOTS_HUGE, SLOTS_TMPFS, SLOTS_MEMFD, N_SLOTS_KINDS };

/* Memory for slots of `budget` bytes in all, of the best kind from `best` on that this machine allows. */
int slots_open(struct slots **out, uint64_t budget, enum slots_kind best, struct sl_error *err) SL_MUST_CHECK;
void slots_close(struct slots *slots);

/* What the slots are files of, and why of nothing better: "memfd; no tmpfs: Operation not permitted". */
const char *slots_what(const struct slots *slots);
uint64_t slots_budget(const struct slots *slots);
/* Bytes of the budget that are taken. */
uint64_t slots_used(const struct slots *slots);

/* Would a new slot of that size fit? And one in place of `old` (may be NULL)? */
bool slots_have_room(const struct slots *slots, uint64_t size, const struct slot *old);

/* Can it become one of that size without giving pages back, or needing new ones? */
bool slot_fits(const struct slot *slot, uint64_t size);

/* A new slot for a file of `size` bytes, which must fit. Its bytes are undefined. */
int slot_open(struct slot **out, struct slots *slots, uint64_t size, struct sl_error *err) SL_MUST_CHECK;
/* Make it one for a file of another size, which must fit in its place. Nobody may hold it. On failure it is closed. */
int slot_resize(struct slots *slots, struct slot *slot, uint64_t size, struct sl_error *err) SL_MUST_CHECK;
void slot_close(struct slots *slots, struct slot *slot);

/* Does anybody but us have it open or mapped? Nobody may be opening it meanwhile. */
bool slot_is_held(const struct slot *slot);

#endif
