/*
 * log.c - lines to stderr or syslog, errors of files once each.
 *
 * What has been said is a small open-addressed set of (inode, errno) hashes. It never grows: when it is half full, a
 * machine is in such trouble that more lines would tell nothing new, and one last line says so.
 */
#include "fs/log.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define N_SAID 4096 /* a power of two */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t said[N_SAID];
static size_t n_said;
static atomic_bool background, libfuse_aloud;
static char libfuse_said[512]; /* written by one thread: there are no others yet */

void log_to_syslog(void)
{
	openlog("rankfs", LOG_PID, LOG_DAEMON);
	background = true;
}

void log_line(int level, const char *fmt, ...)
{
	char text[2048];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (!background)
		fprintf(stderr, "rankfs: %s\n", text);
	else if (level != LOG_DEBUG)
		syslog(level, "%s", text);
}

/* Spread the bits of an inode number and an errno; never 0, which marks a free place. */
static uint64_t hash_of(uint64_t ino, int errnum)
{
	uint64_t hash = (ino ^ (uint64_t)errnum << 48) * UINT64_C(0x9e3779b97f4a7c15);

	return (hash ^ hash >> 32) | 1;
}

enum novelty { SAID_BEFORE, NEW, LAST };

static enum novelty remember(uint64_t hash)
{
	size_t at = (hash >> 1) % N_SAID;

	while (said[at] && said[at] != hash)
		at = (at + 1) % N_SAID;
	if (said[at] || n_said > N_SAID / 2)
		return SAID_BEFORE;
	said[at] = hash;
	return ++n_said > N_SAID / 2 ? LAST : NEW;
}

void log_file_error(uint64_t ino, const char *path, const struct sl_error *err)
{
	char shown[512];
	enum novelty novelty;

	pthread_mutex_lock(&lock);
	novelty = remember(hash_of(ino, err->errnum));
	pthread_mutex_unlock(&lock);
	if (novelty == SAID_BEFORE)
		return;
	log_line(LOG_ERR, "%s: %s (%s)", sl_escape(shown, sizeof(shown), path, strlen(path)), err->text,
		 strerrorname_np(err->errnum));
	if (novelty == LAST)
		log_line(LOG_ERR, "errors of %d files have been logged; further ones are counted only", N_SAID / 2);
}

void log_libfuse(int level, const char *fmt, va_list ap)
{
	char text[sizeof(libfuse_said)];

	vsnprintf(text, sizeof(text), fmt, ap);
	text[strcspn(text, "\n")] = '\0';
	if (level > LOG_WARNING || libfuse_aloud)
		log_line(level, "%s", text);
	else if (!libfuse_said[0])
		memcpy(libfuse_said, text, sizeof(text));
}

void log_libfuse_aloud(void)
{
	libfuse_aloud = true;
}

const char *log_libfuse_said(void)
{
	return libfuse_said;
}
