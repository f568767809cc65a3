/*
 * dtype.c - the table of element types.
 */
#include "slicer/dtype.h"

#include <string.h>

/* clang-format off */
/* To add a dtype: an id in dtype.h, in the writer's order, and a row here. */
const struct sl_dtype_row sl_dtypes[SL_N_DTYPES] = {
	[SL_BOOL]        = { "BOOL",        8,  false, "|b1", NULL },
	[SL_F4]          = { "F4",          4,  true,  NULL,  NULL },
	[SL_F6_E2M3]     = { "F6_E2M3",     6,  true,  NULL,  NULL },
	[SL_F6_E3M2]     = { "F6_E3M2",     6,  true,  NULL,  NULL },
	[SL_U8]          = { "U8",          8,  false, "|u1", NULL },
	[SL_I8]          = { "I8",          8,  false, "|i1", NULL },
	[SL_F8_E5M2]     = { "F8_E5M2",     8,  true,  NULL,  NULL },
	[SL_F8_E4M3]     = { "F8_E4M3",     8,  true,  NULL,  NULL },
	[SL_F8_E8M0]     = { "F8_E8M0",     8,  true,  NULL,  NULL },
	[SL_F8_E4M3FNUZ] = { "F8_E4M3FNUZ", 8,  true,  NULL,  NULL },
	[SL_F8_E5M2FNUZ] = { "F8_E5M2FNUZ", 8,  true,  NULL,  NULL },
	[SL_I16]         = { "I16",         16, false, "<i2", NULL },
	[SL_U16]         = { "U16",         16, false, "<u2", NULL },
	[SL_F16]         = { "F16",         16, true,  "<f2", "float16" },
	[SL_BF16]        = { "BF16",        16, true,  NULL,  "bfloat16" },
	[SL_I32]         = { "I32",         32, false, "<i4", NULL },
	[SL_U32]         = { "U32",         32, false, "<u4", NULL },
	[SL_F32]         = { "F32",         32, true,  "<f4", "float32" },
	[SL_C64]         = { "C64",         64, true,  "<c8", NULL },
	[SL_F64]         = { "F64",         64, true,  "<f8", "float64" },
	[SL_I64]         = { "I64",         64, false, "<i8", NULL },
	[SL_U64]         = { "U64",         64, false, "<u8", NULL },
};
/* clang-format on */

int sl_dtype_find(const char *name, size_t len)
{
	for (int i = 0; i < SL_N_DTYPES; i++) {
		if (strlen(sl_dtypes[i].name) == len && memcmp(sl_dtypes[i].name, name, len) == 0)
			return i;
	}
	return -1;
}
