/*
 * test_error.c - one sentence, the first one wins, never cut inside a character; and what untrusted names look like in
 * it.
 */
#include "slicer/error.h"
#include "slicer/utf8.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(error, .timeout = 30);

/* Valid UTF-8 from end to end? */
static int is_text(const char *text)
{
	const unsigned char *at = (const unsigned char *)text;
	size_t left = strlen(text), n;

	for (; left > 0; left -= n, at += n) {
		n = sl_utf8_char(at, left);
		if (n == 0)
			return 0;
	}
	return 1;
}

Test(error, first_wins)
{
	struct sl_error err = SL_ERROR_INIT;

	cr_assert_eq(sl_fail(&err, EINVAL, "tensor '%s' has %d rows", "x", 3), -EINVAL);
	cr_assert_eq(sl_fail(&err, EIO, "the clean-up failed too"), -EINVAL);
	cr_assert_eq(err.errnum, EINVAL);
	cr_assert_str_eq(err.text, "tensor 'x' has 3 rows");
}

Test(error, nobody_asks)
{
	cr_assert_eq(sl_fail(NULL, EIO, "%d", 1), -EIO);
	cr_assert_lt(sl_error_prefix(NULL, "x"), 0);
}

Test(error, prefix)
{
	struct sl_error err = SL_ERROR_INIT;

	cr_assert_eq(sl_error_prefix(&err, "nothing is wrong"), 0);
	cr_assert_str_eq(err.text, "");
	sl_fail(&err, EIO, "5 bytes are missing");
	cr_assert_eq(sl_error_prefix(&err, "%s", "model.safetensors"), -EIO);
	cr_assert_eq(sl_error_prefix(&err, "/models/%d", 7), -EIO);
	cr_assert_str_eq(err.text, "/models/7: model.safetensors: 5 bytes are missing");
}

/* Text of `n` ASCII letters and then two-byte characters, `len` bytes in all. */
static char *long_text(size_t n, size_t len)
{
	char *text = malloc(len + 1);

	for (size_t i = 0; i < len; i++)
		text[i] = i < n ? 'a' : (i - n) % 2 ? '\xA9' : '\xC3';
	text[len] = '\0';
	return text;
}

Test(error, cut_between_characters)
{
	for (size_t n = 0; n < 4; n++) {
		struct sl_error err = SL_ERROR_INIT;
		char *text = long_text(n, 2000 + n);
		sl_fail(&err, EINVAL, "%s", text);
		cr_assert_geq(strlen(err.text), sizeof(err.text) - 2);
		cr_assert(is_text(err.text));
		sl_error_prefix(&err, "x");
		cr_assert(is_text(err.text));
		cr_assert(strncmp(err.text, "x: ", 3) == 0);
		free(text);
	}
}

Test(error, prefix_longer_than_the_room)
{
	for (size_t n = 0; n < 4; n++) {
		struct sl_error err = SL_ERROR_INIT;
		char *text = long_text(n, 3000 + n);
		sl_fail(&err, ENOENT, "the cause");
		cr_assert_eq(sl_error_prefix(&err, "%s", text), -ENOENT);
		cr_assert_lt(strlen(err.text), sizeof(err.text));
		cr_assert(is_text(err.text));
		free(text);
	}
}

/* Each length of prefix and text, around the size of the buffer. */
Test(error, every_length_fits)
{
	for (size_t front = 900; front < 1010; front++) {
		for (size_t back = 0; back < 120; back += 7) {
			struct sl_error err = SL_ERROR_INIT;
			sl_fail(&err, EINVAL, "%*s", (int)back, "");
			sl_error_prefix(&err, "%*s", (int)front, "");
			cr_assert_lt(strlen(err.text), sizeof(err.text));
		}
	}
}

static void expect_escaped(const char *text, size_t len, const char *want)
{
	char shown[64];

	cr_assert_str_eq(sl_escape(shown, sizeof(shown), text, len), want);
}

Test(error, escape)
{
	expect_escaped("", 0, "");
	expect_escaped("model.layers.0", 14, "model.layers.0");
	expect_escaped("Größe", 7, "Größe");
	expect_escaped("a\nb\x1b[2J", 7, "a\\x0ab\\x1b[2J");
	expect_escaped("it's \"x\\y\"", 10, "it\\x27s \\x22x\\x5cy\\x22");
	expect_escaped("a\0b", 3, "a\\x00b");
	expect_escaped("\x7f\xff\xc3", 3, "\\x7f\\xff\\xc3");
	expect_escaped("\xc2\x9b", 2, "\\xc2\\x9b");
	expect_escaped("\xed\xa0\x80", 3, "\\xed\\xa0\\x80");
}

Test(error, escape_cuts_with_dots)
{
	char shown[16];
	const char *text = "a-rather-long-name";

	cr_assert_str_eq(sl_escape(shown, sizeof(shown), text, strlen(text)), "a-rather-lon…");
	cr_assert_str_eq(sl_escape(shown, sizeof(shown), "fifteen-letters", 15), "fifteen-letters");
	cr_assert_str_eq(sl_escape(shown, sizeof(shown), "sixteen--letters", 16), "sixteen--let…");
}

Test(error, several_escapes_in_one_message)
{
	struct sl_error err = SL_ERROR_INIT;

	sl_fail(&err, EINVAL, "'%s' and '%s'", SL_ESC("a\t"), SL_ESC("b\r"));
	cr_assert_str_eq(err.text, "'a\\x09' and 'b\\x0d'");
}

/* Whatever comes in, what comes out fits, ends, and is printable text without quotes. */
Test(error, escape_of_anything)
{
	unsigned state = 1;
	char in[40], *shown;

	for (unsigned i = 0; i < 20000; i++) {
		size_t cap = 4 + i % 60, len = i % sizeof(in);
		for (size_t b = 0; b < len; b++) {
			state = state * 1103515245 + 12345;
			in[b] = (char)(state >> 16);
		}
		shown = malloc(cap);
		sl_escape(shown, cap, in, len);
		cr_assert_lt(strlen(shown), cap);
		cr_assert(is_text(shown));
		for (const char *at = shown; *at; at++)
			cr_assert((unsigned char)*at >= 0x20 && *at != 0x7F && *at != '\'' && *at != '"');
		free(shown);
	}
}
