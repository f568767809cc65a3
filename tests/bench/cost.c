/*
 * cost - what a command costs: cost COMMAND…  prints "SECONDS MIB" of its run, and ends as it did. Its stdout goes nowhere.
 */
#include <fcntl.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
	double start = now();
	struct rusage usage;
	int status = 0;
	pid_t child = argc > 1 ? fork() : -1;

	if (child < 0) {
		fprintf(stderr, "usage: cost COMMAND…\n");
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
	printf("%.3f %.1f\n", now() - start, (double)usage.ru_maxrss / 1024);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
