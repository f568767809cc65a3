/*
 * daemon.c - fork, a pipe with one byte in it, and the datagram of sd_notify(3).
 */
#include "fs/daemon.h"
#include "fs/command.h"
#include "fs/log.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define READY_MS 30000
#define END_MS	 5000

void daemon_prepare(void)
{
	struct rlimit files;
	int fd;

	do
		fd = open("/dev/null", O_RDWR);
	while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd > STDERR_FILENO)
		close(fd);
	if (!getrlimit(RLIMIT_NOFILE, &files) && files.rlim_cur < files.rlim_max) {
		files.rlim_cur = files.rlim_max;
		if (setrlimit(RLIMIT_NOFILE, &files))
			log_line(LOG_WARNING, "cannot raise the limit of open files: %s", strerror(errno));
	}
}

/* Wait until a child has ended; false when it has not in time. */
static bool wait_for_end(pid_t child, int *status, int ms)
{
	const struct timespec pause = { .tv_nsec = 20000000 };

	for (; ms > 0; ms -= 20) {
		if (waitpid(child, status, WNOHANG) == child)
			return true;
		nanosleep(&pause, NULL);
	}
	return false;
}

static int give_up(pid_t child, const char *mountpoint)
{
	int status;

	fprintf(stderr, "rankfs: %s: not ready after %d seconds; ending the daemon\n", mountpoint, READY_MS / 1000);
	kill(child, SIGTERM);
	if (wait_for_end(child, &status, END_MS))
		return EXIT_REFUSED;
	kill(child, SIGKILL);
	fprintf(stderr, "rankfs: %s: the daemon had to be killed: unmount it with 'umount -l %s'\n", mountpoint,
		mountpoint);
	return EXIT_REFUSED;
}

/* The child closed the pipe without a word. */
static int explain_end(pid_t child, const char *mountpoint)
{
	int status;

	if (!wait_for_end(child, &status, END_MS))
		return give_up(child, mountpoint);
	if (WIFSIGNALED(status))
		fprintf(stderr, "rankfs: %s: the daemon died of signal %d (%s) before it was ready\n", mountpoint,
			WTERMSIG(status), strsignal(WTERMSIG(status)));
	else
		fprintf(stderr, "rankfs: %s: the daemon was ended before it was ready\n", mountpoint);
	return EXIT_SYSTEM;
}

static int wait_for_report(int report, pid_t child, const char *mountpoint)
{
	struct pollfd from = { .fd = report, .events = POLLIN };
	unsigned char exit_code;
	int n;

	do
		n = poll(&from, 1, READY_MS);
	while (n < 0 && errno == EINTR);
	if (n == 0)
		return give_up(child, mountpoint);
	if (read(report, &exit_code, 1) != 1)
		return explain_end(child, mountpoint);
	return exit_code;
}

static bool fail_to_start(int *exit_code, const char *what)
{
	fprintf(stderr, "rankfs: %s: %s\n", what, strerror(errno));
	*exit_code = EXIT_SYSTEM;
	return false;
}

bool daemon_start(struct daemon *daemon, bool foreground, const char *mountpoint, int *exit_code)
{
	int ends[2];
	pid_t child;

	daemon->foreground = foreground;
	daemon->report = -1;
	if (foreground)
		return true;
	if (pipe2(ends, O_CLOEXEC))
		return fail_to_start(exit_code, "pipe");
	fflush(NULL);
	child = fork();
	if (child < 0)
		return fail_to_start(exit_code, "fork");
	close(ends[child ? 1 : 0]);
	daemon->report = ends[1];
	if (!child) {
		setsid();
		return true;
	}
	*exit_code = wait_for_report(ends[0], child, mountpoint);
	close(ends[0]);
	return false;
}

/* sd_notify(3): one datagram to the socket that the environment names; '@' stands for the NUL of an abstract one. */
static void notify_service_manager(void)
{
	const char *path = getenv("NOTIFY_SOCKET");
	struct sockaddr_un to = { .sun_family = AF_UNIX };
	size_t len = path ? strlen(path) : 0;
	int fd;

	if (!len)
		return;
	if (len >= sizeof(to.sun_path)) {
		log_line(LOG_ERR, "NOTIFY_SOCKET is longer than %zu bytes", sizeof(to.sun_path) - 1);
		return;
	}
	memcpy(to.sun_path, path, len);
	if (path[0] == '@')
		to.sun_path[0] = '\0';
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || sendto(fd, "READY=1", 7, 0, (const struct sockaddr *)&to,
			     (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len)) < 0)
		log_line(LOG_ERR, "NOTIFY_SOCKET %s: %s", path, strerror(errno));
	if (fd >= 0)
		close(fd);
}

static void let_go_of_terminal(void)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	log_to_syslog();
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (null < 0 || dup2(null, fd) < 0)
			log_line(LOG_WARNING, "cannot let go of file %d: %s", fd, strerror(errno));
	if (null > STDERR_FILENO)
		close(null);
}

static void tell(struct daemon *daemon, unsigned char exit_code)
{
	if (daemon->report < 0)
		return;
	if (write(daemon->report, &exit_code, 1) != 1)
		log_line(LOG_WARNING, "the process that started this one is gone: %s", strerror(errno));
	close(daemon->report);
	daemon->report = -1;
}

void daemon_ready(struct daemon *daemon)
{
	if (!daemon->foreground)
		let_go_of_terminal();
	tell(daemon, EXIT_OK);
	notify_service_manager();
}

void daemon_failed(struct daemon *daemon, int exit_code)
{
	tell(daemon, (unsigned char)exit_code);
}
