/*
 * backing.h - telling the kernel which file stands behind a FUSE file: then reads and page faults go there, and never
 * come to the daemon (FUSE passthrough; Linux 6.9, CAP_SYS_ADMIN).
 *
 * An id stands for one open file and keeps it alive. Two opens of one inode must be answered with the same id.
 */
#ifndef FS_BACKING_H
#define FS_BACKING_H

/* An id (positive) for the file `fd`, which may be closed then; or -errno. `device` is the session's /dev/fuse. */
int backing_open(int device, int fd);
void backing_close(int device, int id);

#endif
