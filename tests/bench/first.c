/*
 * first - how soon files answer: first read|mmap HOW-MUCH FILE…  prints "SECONDS MS": all of it, and the median of the files.
 *
 * Each is opened, its header read as engines do it (its length, then as many bytes), and closed. HOW-MUCH is - for that, or
 * a number of bytes: so many are read instead. "mmap" reads through a mapping.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define FILES	   65536
#define MAX_HEADER (64u << 20)

static char header[MAX_HEADER];

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static uint64_t wanted(const char *how_much, const void *start)
{
	uint64_t len = 0;

	if (*how_much != '-')
		return strtoull(how_much, NULL, 10);
	memcpy(&len, start, sizeof(len));
	return len < MAX_HEADER - sizeof(len) ? sizeof(len) + len : 0;
}

static void read_plainly(int fd, const char *how_much, const char *path)
{
	uint64_t len = 1;

	if (*how_much == '-' && pread(fd, header, 8, 0) != 8)
		fail(path);
	len = wanted(how_much, header);
	if (pread(fd, header, len, 0) != (ssize_t)len)
		fail(path);
}

static void read_mapped(int fd, const char *how_much, const char *path)
{
	struct stat st;
	char *map;

	fstat(fd, &st);
	map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		fail(path);
	memcpy(header, map, wanted(how_much, map));
	munmap(map, (size_t)st.st_size);
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
	static double times[FILES];
	int n = argc - 3;
	double start = now();

	if (n < 1 || n > FILES) {
		fprintf(stderr, "usage: first read|mmap -|BYTES FILE…\n");
		return 1;
	}
	for (int i = 0; i < n; i++) {
		const char *path = argv[3 + i];
		double began = now();
		int fd = open(path, O_RDONLY);

		if (fd < 0)
			fail(path);
		(strcmp(argv[1], "mmap") ? read_plainly : read_mapped)(fd, argv[2], path);
		times[i] = now() - began;
		close(fd);
	}
	start = now() - start;
	qsort(times, (size_t)n, sizeof(double), by_size);
	printf("%.3f %.3f\n", start, times[n / 2] * 1e3);
	return 0;
}
