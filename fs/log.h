/*
 * log.h - what the serving side says: to stderr in the foreground, to syslog in the background.
 *
 * A broken source fails every read of it, thousands a second, so errors of files are said once per file and errno. Until
 * a mount is ready nobody reads syslog: then lines go to stderr, and libfuse's own complaints are kept to be made part of
 * the error that the user sees. All functions are thread-safe, but for log_to_syslog().
 */
#ifndef FS_LOG_H
#define FS_LOG_H

#include "slicer/error.h"
#include <stdarg.h>
#include <stdint.h>
#include <syslog.h>

/* From now on to syslog, as rankfs in the daemon facility. Before: to stderr. */
void log_to_syslog(void);

/* One line, without a newline; `level` is syslog's. LOG_DEBUG is said on stderr only. */
void log_line(int level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* An error of the file with inode number `ino` and that path, unless that file has had that errno already. */
void log_file_error(uint64_t ino, const char *path, const struct sl_error *err);

/* A line of libfuse. A complaint before log_libfuse_aloud() is kept and not logged: the first one is why a mount fails. */
void log_libfuse(int level, const char *fmt, va_list ap) __attribute__((format(printf, 2, 0)));
void log_libfuse_aloud(void);

/* What libfuse complained of first, or "". */
const char *log_libfuse_said(void);

#endif
