/*
 * noise - fill the tensor data of safetensors files, which may be holes, with random bytes: noise FILE…
 *
 * xorshift64, seeded by the place in the file, so that the same file always gets the same bytes.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

enum { WORDS = 1 << 17 };

static int fill(const char *path)
{
	static uint64_t words[WORDS];
	int fd = open(path, O_RDWR);
	off_t off, end = fd < 0 ? 0 : lseek(fd, 0, SEEK_END);
	uint64_t header, x = 88172645463325252;

	if (fd < 0 || pread(fd, &header, sizeof(header), 0) != sizeof(header))
		return -1;
	for (off = (off_t)(8 + header); off < end; off += sizeof(words)) {
		size_t len = end - off < (off_t)sizeof(words) ? (size_t)(end - off) : sizeof(words);

		for (int i = 0; i < WORDS; i++) {
			x ^= x << 13;
			x ^= x >> 7;
			x ^= x << 17;
			words[i] = x;
		}
		if (pwrite(fd, words, len, off) != (ssize_t)len)
			return -1;
	}
	return close(fd);
}

int main(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		if (fill(argv[i])) {
			perror(argv[i]);
			return 1;
		}
	}
	return 0;
}
