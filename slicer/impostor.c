/*
 * impostor.c - the first bytes of what is saved under a model's name by mistake, and what to do about each.
 */
#include "slicer/impostor.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

#define TEXT(prefix) prefix, sizeof(prefix) - 1

/* To add a kind: its first bytes and the sentence; longer prefixes before shorter ones that begin the same. */
/* clang-format off */
static const struct {
	const char *prefix;
	size_t len;
	const char *what;
} kinds[] = {
	{ TEXT("<?xml"),            "is an XML text, not weights: an error page that was saved? download it again" },
	{ TEXT("<!DOCTYPE"),        "is an HTML page, not weights: an error page that was saved? download it again" },
	{ TEXT("<!doctype"),        "is an HTML page, not weights: an error page that was saved? download it again" },
	{ TEXT("<html"),            "is an HTML page, not weights: an error page that was saved? download it again" },
	{ TEXT("{\"error\""),       "is a server's error message that was saved: download it again" },
	{ TEXT("PK\x03\x04"),       "is a zip archive (PyTorch's .bin and .pth are): only safetensors is supported" },
	{ TEXT("GGUF"),             "is a GGUF file: only safetensors is supported" },
	{ TEXT("\x89HDF"),          "is an HDF5 file: only safetensors is supported" },
	{ TEXT("\x1f\x8b"),         "is compressed by gzip: unpack it" },
	{ TEXT("\x28\xb5\x2f\xfd"), "is compressed by zstd: unpack it" },
	{ TEXT("\xff\xfe"),         "is UTF-16 text: it must be UTF-8" },
	{ TEXT("\xfe\xff"),         "is UTF-16 text: it must be UTF-8" },
};
/* clang-format on */

/* The pointer's "size 123" line as its digits, or "unknown". */
static void pointer_size(const char *head, size_t len, char size[24])
{
	static const char line[] = "\nsize ";
	const char *at = memmem(head, len, line, strlen(line));
	size_t n = 0;

	if (at) {
		for (at += strlen(line); at < head + len && n < 23 && isdigit((unsigned char)*at); at++)
			size[n++] = *at;
	}
	size[n] = '\0';
	if (n == 0)
		strcpy(size, "unknown");
}

int sl_impostor_check(const char *head, size_t len, struct sl_error *err)
{
	static const char pointer[] = "version https://git-lfs";
	char size[24];

	if (len >= strlen(pointer) && memcmp(head, pointer, strlen(pointer)) == 0) {
		pointer_size(head, len, size);
		return sl_fail(err, EINVAL, "is a git-lfs pointer (real size %s): run git lfs pull", size);
	}
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		if (len >= kinds[i].len && memcmp(head, kinds[i].prefix, kinds[i].len) == 0)
			return sl_fail(err, EINVAL, "%s", kinds[i].what);
	}
	return 0;
}

/* Eight bytes of print are no length of any header: as a number they are above 2^60. */
int sl_impostor_check_binary(const char *head, size_t len, struct sl_error *err)
{
	char shown[64];
	size_t n = 0;

	int ret = sl_impostor_check(head, len, err);
	if (ret)
		return ret;
	while (n < len && n < 12 && (isprint((unsigned char)head[n]) || isspace((unsigned char)head[n])))
		n++;
	if (n < 8)
		return 0;
	return sl_fail(err, EINVAL, "is text that begins '%s', not weights: download it again",
		       sl_escape(shown, sizeof(shown), head, n));
}
