/*
 * test_text.c - numbers and JSON strings in growing text, against printf and a loop over characters.
 */
#include "slicer/text.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void expect(struct sl_text *text, const char *want)
{
	cr_assert_not(text->failed);
	cr_assert_eq(text->len, strlen(want), "%zu bytes, not %zu", text->len, strlen(want));
	cr_assert_str_eq(text->bytes ? text->bytes : "", want);
	sl_text_release(text);
}

Test(text, numbers)
{
	uint64_t value = 1;
	char want[32];

	for (unsigned i = 0; i < 200000; i++) {
		struct sl_text text = SL_TEXT_INIT;
		uint64_t now = i < 100000 ? i : value;
		value = value * UINT64_C(6364136223846793005) + 1442695040888963407;
		snprintf(want, sizeof(want), "%" PRIu64, now >> (i % 64));
		sl_text_u64(&text, now >> (i % 64));
		expect(&text, want);
	}
	struct sl_text text = SL_TEXT_INIT;
	sl_text_u64(&text, UINT64_MAX);
	expect(&text, "18446744073709551615");
}

/* Character by character. */
static void escape(const char *string, char *out)
{
	*out++ = '"';
	for (; *string; string++) {
		if ((unsigned char)*string < 0x20)
			out += sprintf(out, "\\u%04x", (unsigned char)*string);
		else if (*string == '"' || *string == '\\')
			out += sprintf(out, "\\%c", *string);
		else
			*out++ = *string;
	}
	*out++ = '"';
	*out = '\0';
}

/* Each byte at each place of strings of each length. */
Test(text, json_strings)
{
	char string[32], want[256];

	for (size_t len = 0; len < 24; len++) {
		for (size_t at = 0; at < (len ? len : 1); at++) {
			for (unsigned byte = 1; byte < 256; byte++) {
				struct sl_text text = SL_TEXT_INIT;
				memset(string, 'a', len);
				string[len] = '\0';
				if (len)
					string[at] = (char)byte;
				if (len > at + 3)
					string[at + 3] = '"';
				escape(string, want);
				sl_text_json_string(&text, string);
				expect(&text, want);
			}
		}
	}
}

Test(text, grows_and_joins)
{
	struct sl_text text = SL_TEXT_INIT;
	char want[4096] = "";

	cr_assert(sl_text_reserve(&text, 1));
	sl_text_add(&text, NULL, 0);
	for (unsigned i = 0; i < 300; i++) {
		char part[16];
		snprintf(part, sizeof(part), "%u,", i);
		strcat(want, part);
		sl_text_put(&text, part);
	}
	expect(&text, want);
}
