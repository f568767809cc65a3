/*
 * limit - what staging can reach on this machine, without FUSE: limit SOURCE SLOTS RUN STRIDE
 *
 * One thread fills three 128 MiB files in SLOTS (a tmpfs, best with huge pages) from SOURCE, another reads them into a
 * large buffer that has been touched before: the two copies that staging makes, and nothing else. RUN bytes are taken out
 * of every STRIDE (equal: a row slice; less: a column slice). In turn with plain reads of as many bytes; printed are the
 * medians of both in GB/s. The filler copies out of a mapping of SOURCE, populated 16 MiB ahead.
 */
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define SLOTS	3
#define SLOT	(128ul << 20)
#define AHEAD	(16ul << 20)
#define REQUEST (4ul << 20)
#define ROUNDS	5
#define BUFFER	(512ul << 20)

static int source, slots[SLOTS];
static char *maps[SLOTS], *map;
static size_t run, stride, n_loads, source_size;
static sem_t full[SLOTS], empty[SLOTS];

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

static void fill(char *dst, size_t base)
{
	size_t span = SLOT / run * stride;

	for (size_t off = 0; off < span; off += AHEAD) {
		size_t end = span - off < AHEAD ? span : off + AHEAD;

		madvise(map + base + off, end - off, MADV_POPULATE_READ);
		if (run == stride)
			memcpy(dst + off, map + base + off, end - off);
		for (size_t at = off; run < stride && at < end; at += stride, dst += run)
			memcpy(dst, map + base + at, run);
	}
}

static void *run_filler(void *unused)
{
	size_t span = SLOT / run * stride, room = source_size - span;

	for (size_t k = 0; k < n_loads; k++) {
		sem_wait(&empty[k % SLOTS]);
		fill(maps[k % SLOTS], room ? k * span % room / AHEAD * AHEAD : 0);
		sem_post(&full[k % SLOTS]);
	}
	return unused;
}

static void read_all(int fd, off_t base, size_t size, char *buffer)
{
	for (size_t off = 0; off < size; off += REQUEST)
		if (pread(fd, buffer + ((size_t)base + off) % BUFFER, REQUEST, base + (off_t)off) <= 0)
			fail("pread");
}

static double staged(char *buffer)
{
	pthread_t filler;
	double start;

	for (int i = 0; i < SLOTS; i++) {
		sem_init(&full[i], 0, 0);
		sem_init(&empty[i], 0, 1);
	}
	start = now();
	pthread_create(&filler, NULL, run_filler, NULL);
	for (size_t k = 0; k < n_loads; k++) {
		sem_wait(&full[k % SLOTS]);
		read_all(slots[k % SLOTS], 0, SLOT, buffer);
		sem_post(&empty[k % SLOTS]);
	}
	pthread_join(filler, NULL);
	return (double)(n_loads * SLOT) / (now() - start) / 1e9;
}

static double plain(char *buffer)
{
	double start = now();

	for (size_t k = 0; k < n_loads; k++)
		read_all(source, (off_t)(k * SLOT % (source_size - SLOT + 1) / REQUEST * REQUEST), SLOT, buffer);
	return (double)(n_loads * SLOT) / (now() - start) / 1e9;
}

static void open_slots(const char *dir)
{
	char path[4096];

	for (int i = 0; i < SLOTS; i++) {
		snprintf(path, sizeof(path), "%s/slot%d", dir, i);
		slots[i] = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
		if (slots[i] < 0 || ftruncate(slots[i], SLOT))
			fail(path);
		maps[i] = mmap(NULL, SLOT, PROT_READ | PROT_WRITE, MAP_SHARED, slots[i], 0);
		if (maps[i] == MAP_FAILED)
			fail(path);
		memset(maps[i], 0, SLOT);
	}
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
	double speeds[2][ROUNDS];
	char *buffer;

	if (argc != 5) {
		fprintf(stderr, "usage: limit SOURCE SLOTS RUN STRIDE\n");
		return 1;
	}
	source = open(argv[1], O_RDONLY);
	run = strtoul(argv[3], NULL, 10);
	stride = strtoul(argv[4], NULL, 10);
	source_size = source < 0 ? 0 : (size_t)lseek(source, 0, SEEK_END) / AHEAD * AHEAD;
	if (!run || run > stride || source_size < SLOT / run * stride)
		fail(argv[1]);
	n_loads = 12;
	map = mmap(NULL, source_size, PROT_READ, MAP_SHARED, source, 0);
	buffer = aligned_alloc(2ul << 20, BUFFER);
	if (map == MAP_FAILED || !buffer)
		fail("memory");
	madvise(buffer, BUFFER, MADV_HUGEPAGE);
	memset(buffer, 1, BUFFER);
	open_slots(argv[2]);
	for (int round = -1; round < ROUNDS; round++) {
		double a = plain(buffer), b = staged(buffer);

		madvise(map, source_size, MADV_DONTNEED);
		if (round >= 0) {
			speeds[0][round] = a;
			speeds[1][round] = b;
		}
	}
	qsort(speeds[0], ROUNDS, sizeof(double), by_size);
	qsort(speeds[1], ROUNDS, sizeof(double), by_size);
	printf("%.3f %.3f\n", speeds[0][ROUNDS / 2], speeds[1][ROUNDS / 2]);
	return 0;
}
