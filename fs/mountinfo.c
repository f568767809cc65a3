/*
 * mountinfo.c - one line of /proc/self/mountinfo at a time (proc_pid_mountinfo(5)):
 *
 *      36 35 0:52 / /mnt/qwen ro,nosuid,nodev shared:1 - fuse.rankfs /models/Qwen3 ro,user_id=0
 *            dev    mount point                 [tags] -  type        source
 *
 * Spaces, tabs, newlines and backslashes in names are octal escapes.
 */
#include "fs/mountinfo.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_octal(char c)
{
	return c >= '0' && c <= '7';
}

/* "\040" and its like, in place. */
static void decode_octal(char *text)
{
	char *to = text;

	for (; *text; to++) {
		if (text[0] == '\\' && is_octal(text[1]) && is_octal(text[2]) && is_octal(text[3])) {
			*to = (char)((text[1] - '0') << 6 | (text[2] - '0') << 3 | (text[3] - '0'));
			text += 4;
		} else {
			*to = *text++;
		}
	}
	*to = '\0';
}

static bool copy_field(char *dst, size_t cap, const char *field)
{
	if (!field || strlen(field) >= cap)
		return false;
	strcpy(dst, field);
	decode_octal(dst);
	return true;
}

bool mountinfo_parse(char *line, struct mountinfo *info)
{
	char *rest = line, *mountpoint = NULL, *device = NULL, *field;

	for (int i = 0; i < 5; i++) {
		field = strsep(&rest, " ");
		device = i == 2 ? field : device;
		mountpoint = i == 4 ? field : mountpoint;
	}
	if (!device || sscanf(device, "%u:%u", &info->major, &info->minor) != 2)
		return false;
	while ((field = strsep(&rest, " ")) && strcmp(field, "-"))
		;
	return copy_field(info->mountpoint, sizeof(info->mountpoint), mountpoint) &&
	       copy_field(info->fstype, sizeof(info->fstype), strsep(&rest, " ")) &&
	       copy_field(info->source, sizeof(info->source), strsep(&rest, " \n"));
}

int mountinfo_find(const char *path, struct mountinfo *info, struct sl_error *err)
{
	FILE *table = fopen("/proc/self/mountinfo", "re");
	struct mountinfo at;
	char *line = NULL;
	size_t cap = 0;
	bool found = false;

	if (!table)
		return sl_fail(err, errno, "/proc/self/mountinfo: %s", strerror(errno));
	while (getline(&line, &cap, table) > 0)
		if (mountinfo_parse(line, &at) && !strcmp(at.mountpoint, path)) {
			*info = at;
			found = true;
		}
	free(line);
	fclose(table);
	return found ? 0 : sl_fail(err, ENOENT, "%s: nothing is mounted there", path);
}
