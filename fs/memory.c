/*
 * memory.c - /proc/meminfo, and a walk from this process's control group up to the root of the hierarchy.
 *
 * In a container the path of /proc/self/cgroup may not exist below /sys/fs/cgroup, which then shows the container's own
 * group as its root: the walk ends there in any case.
 */
#include "fs/memory.h"
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N_TAKEN 3

/* To add a hierarchy: a row. `key` is what stands before the path in /proc/self/cgroup; `taken` are the lines of memory.stat
 * that the kernel cannot get back when the limit is reached. */
static const struct hierarchy {
	const char *key, *root, *limit;
	const char *taken[N_TAKEN];
} hierarchies[] = {
	{ "0::", "/sys/fs/cgroup", "memory.max", { "anon", "shmem", "kernel" } },
	{ "memory:", "/sys/fs/cgroup/memory", "memory.limit_in_bytes", { "total_rss", "total_shmem", NULL } },
};

static uint64_t smaller(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* The number in a file; UINT64_MAX when there is none, as in "max". */
static uint64_t read_limit(const char *path)
{
	FILE *file = fopen(path, "re");
	uint64_t limit;

	if (!file)
		return UINT64_MAX;
	if (fscanf(file, "%" SCNu64, &limit) != 1)
		limit = UINT64_MAX;
	fclose(file);
	return limit;
}

/* The path of our group, "" for the root. False when the hierarchy is not in use. */
static bool find_group(const struct hierarchy *hierarchy, char *group, size_t size)
{
	FILE *file = fopen("/proc/self/cgroup", "re");
	char line[PATH_MAX + 64];
	bool found = false;

	while (file && !found && fgets(line, sizeof(line), file)) {
		const char *path = strstr(line, hierarchy->key);

		line[strcspn(line, "\n")] = '\0';
		found = path && (size_t)snprintf(group, size, "%s", path + strlen(hierarchy->key)) < size;
	}
	if (file)
		fclose(file);
	return found;
}

/* The sum of the lines of a group's memory.stat that count as taken. */
static uint64_t read_taken(const struct hierarchy *hierarchy, const char *path)
{
	FILE *file = fopen(path, "re");
	char name[64];
	uint64_t value, taken = 0;

	while (file && fscanf(file, "%63s %" SCNu64, name, &value) == 2)
		for (int i = 0; i < N_TAKEN; i++)
			if (hierarchy->taken[i] && !strcmp(name, hierarchy->taken[i]))
				taken += value;
	if (file)
		fclose(file);
	return taken;
}

/* What a group may still take; UINT64_MAX without a limit. */
static uint64_t group_room(const struct hierarchy *hierarchy, const char *group)
{
	char path[2 * PATH_MAX];
	uint64_t limit, taken;

	snprintf(path, sizeof(path), "%s%s/%s", hierarchy->root, group, hierarchy->limit);
	limit = read_limit(path);
	if (limit == UINT64_MAX)
		return limit;
	snprintf(path, sizeof(path), "%s%s/memory.stat", hierarchy->root, group);
	taken = read_taken(hierarchy, path);
	return limit > taken ? limit - taken : 0;
}

/* The least that our group and those above it leave. */
static uint64_t hierarchy_room(const struct hierarchy *hierarchy)
{
	char group[PATH_MAX], *slash;
	uint64_t room = UINT64_MAX;

	if (!find_group(hierarchy, group, sizeof(group)))
		return room;
	for (;;) {
		room = smaller(room, group_room(hierarchy, group));
		slash = strrchr(group, '/');
		if (!slash)
			return room;
		*slash = '\0';
	}
}

static uint64_t machine_available(void)
{
	FILE *file = fopen("/proc/meminfo", "re");
	char line[128];
	uint64_t kib = 0;

	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "MemAvailable: %" SCNu64, &kib) == 1)
			break;
	if (file)
		fclose(file);
	return kib << 10;
}

uint64_t memory_available(void)
{
	uint64_t available = machine_available();

	for (size_t i = 0; i < sizeof(hierarchies) / sizeof(hierarchies[0]); i++)
		available = smaller(available, hierarchy_room(&hierarchies[i]));
	return available;
}
