/*
 * cost - what a command costs: cost [-c] COMMAND…  prints "SECONDS MIB" of its run, and ends as it did. Its stdout goes
 * nowhere. With -c seconds of processor time, which others' work does not change.
 */
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double seconds_of(struct timeval t)
{
	return (double)t.tv_sec + (double)t.tv_usec / 1e6;
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
	bool cpu = argc > 1 && strcmp(argv[1], "-c") == 0;
	double start = now(), took;
	struct rusage usage;
	int status = 0;

	argv += cpu;
	argc -= cpu;
	pid_t child = argc > 1 ? fork() : -1;

	if (child < 0) {
		fprintf(stderr, "usage: cost [-c] COMMAND…\n");
		return 1;
	}
	if (!child) {
		dup2(open("/dev/null", O_WRONLY), STDOUT_FILENO);
		execvp(argv[1], argv + 1);
		perror(argv[1]);
		_exit(127);
	}
	if (wait4(child, &status, 0, &usage) != child)
		return 1;
	took = cpu ? seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime) : now() - start;
	printf("%.3f %.1f\n", took, (double)usage.ru_maxrss / 1024);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
