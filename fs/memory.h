/*
 * memory.h - how much memory this process may still use: what the machine has available, and what its control groups
 * allow.
 */
#ifndef FS_MEMORY_H
#define FS_MEMORY_H

#include <stdint.h>

/* Bytes that can be taken without anybody being pushed out (MemAvailable), or what the memory limits of this process's
 * control groups leave (v2 and v1, the groups above included) where that is less. What they count and could get back, the
 * page cache, is not counted. 0 when nothing is known. */
uint64_t memory_available(void);

#endif
