/*
 * daemon.h - going to the background, and telling whoever started us when the mount can be used.
 *
 *      parent  fork ── wait for a byte, 30 s at most ────────────────────── exit with it
 *      child        └─ setsid ── mount ── answer INIT ── look ── tell it ── serve
 *
 * The byte is an exit code of command.h. A child that fails says why on the terminal, which it keeps until it is ready. In
 * the foreground there is no parent; a service manager is told by the protocol of sd_notify(3).
 */
#ifndef FS_DAEMON_H
#define FS_DAEMON_H

#include "slicer/error.h"
#include <stdbool.h>

struct daemon {
	bool foreground;
	int report; /* the pipe to the parent; -1: none, or it has been told */
};

/* /dev/null for those of stdin, stdout and stderr that are closed, so that no other file gets their numbers; and as many
 * open files as the hard limit allows. First thing in main. */
void daemon_prepare(void);

/* Fork, unless `foreground`. True in the process that is to serve; false in the parent, once the child has told or died,
 * with *exit_code to leave with. Before any thread is made. */
bool daemon_start(struct daemon *daemon, bool foreground, const char *mountpoint, int *exit_code);

/* The mount can be used: let go of the terminal and tell. Not in the foreground: then only the service manager is told. */
void daemon_ready(struct daemon *daemon);

/* It cannot: the reason has been printed. Nothing after daemon_ready(). */
void daemon_failed(struct daemon *daemon, int exit_code);

#endif
