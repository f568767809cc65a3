/*
 * load - how fast files are read: load read|mmap ROUNDS LIST…
 *
 * A list is a file of lines "READER PATH": each reader is a thread that reads its files one after another into a large
 * buffer that has been touched before, through read(2) in 4 MiB requests or through a mapping in 1 MiB blocks. Lists are
 * read in turn, ROUNDS times after a round to warm up; printed is the median of each in GB/s, on one line.
 *
 * BEFORE, in the environment, is a command that is run before each list, and not timed.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define READERS 64
#define FILES	8192
#define REQUEST (4ul << 20)
#define BLOCK	(1ul << 20)
#define BUFFERS (512ul << 20) /* of all readers */

struct reader {
	char *paths[FILES];
	unsigned n;
	char *buffer;
	size_t room;
	uint64_t bytes;
};

struct list {
	struct reader readers[READERS];
	unsigned n;
	double speeds[100];
};

static int mapped;

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static void *checked_alloc(size_t size)
{
	void *memory = calloc(1, size);

	if (!memory)
		fail("calloc");
	return memory;
}

static void read_list(struct list *list, const char *path)
{
	FILE *file = fopen(path, "r");
	char name[4096];
	unsigned reader;

	if (!file)
		fail(path);
	while (fscanf(file, "%u %4095s", &reader, name) == 2) {
		if (reader >= READERS || list->readers[reader].n == FILES)
			fail("too many readers or files");
		list->readers[reader].paths[list->readers[reader].n++] = strdup(name);
		if (reader >= list->n)
			list->n = reader + 1;
	}
	fclose(file);
}

/* A file through a mapping that outlives its descriptor, as safetensors has it. */
static void read_mapped(struct reader *r, const char *path, int fd)
{
	struct stat st;
	size_t size;
	char *map;

	fstat(fd, &st);
	size = (size_t)st.st_size;
	map = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
	close(fd);
	if (map == MAP_FAILED)
		fail(path);
	for (size_t off = 0; off < size; off += BLOCK)
		memcpy(r->buffer + off % r->room, map + off, size - off < BLOCK ? size - off : BLOCK);
	munmap(map, size);
	r->bytes += size;
}

static void read_plainly(struct reader *r, const char *path, int fd)
{
	off_t off = 0;
	ssize_t n;

	while ((n = pread(fd, r->buffer + (size_t)off % r->room, REQUEST, off)) > 0)
		off += n;
	if (n < 0)
		fail(path);
	close(fd);
	r->bytes += (uint64_t)off;
}

static void *run_reader(void *context)
{
	struct reader *r = context;

	r->bytes = 0;
	for (unsigned i = 0; i < r->n; i++) {
		int fd = open(r->paths[i], O_RDONLY);

		if (fd < 0)
			fail(r->paths[i]);
		(mapped ? read_mapped : read_plainly)(r, r->paths[i], fd);
	}
	return NULL;
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* GB/s of all readers together. */
static double load(struct list *list, char *buffers)
{
	pthread_t threads[READERS];
	double start = now();
	uint64_t bytes = 0;

	for (unsigned i = 0; i < list->n; i++) {
		list->readers[i].room = BUFFERS / list->n & ~(REQUEST - 1);
		list->readers[i].buffer = buffers + i * (BUFFERS / list->n & ~(REQUEST - 1));
		pthread_create(&threads[i], NULL, run_reader, &list->readers[i]);
	}
	for (unsigned i = 0; i < list->n; i++) {
		pthread_join(threads[i], NULL);
		bytes += list->readers[i].bytes;
	}
	return (double)bytes / (now() - start) / 1e9;
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
	const char *before = getenv("BEFORE");
	int rounds = argc > 3 ? atoi(argv[2]) : 0, n = argc - 3;
	struct list *lists;
	char *buffers;

	if (rounds < 1 || rounds > 100) {
		fprintf(stderr, "usage: load read|mmap ROUNDS LIST…\n");
		return 1;
	}
	mapped = !strcmp(argv[1], "mmap");
	lists = checked_alloc((size_t)n * sizeof(*lists));
	for (int i = 0; i < n; i++)
		read_list(&lists[i], argv[3 + i]);
	buffers = aligned_alloc(2ul << 20, BUFFERS + REQUEST);
	if (!buffers)
		fail("aligned_alloc");
	madvise(buffers, BUFFERS, MADV_HUGEPAGE);
	memset(buffers, 1, BUFFERS + REQUEST);
	for (int round = -1; round < rounds; round++) {
		for (int i = 0; i < n; i++) {
			double speed;

			if (before && system(before))
				fail(before);
			speed = load(&lists[i], buffers);
			if (round >= 0)
				lists[i].speeds[round] = speed;
		}
	}
	for (int i = 0; i < n; i++) {
		qsort(lists[i].speeds, (size_t)rounds, sizeof(double), by_size);
		printf("%s%.3f", i ? " " : "", lists[i].speeds[rounds / 2]);
	}
	putchar('\n');
	return 0;
}
