/*
 * dtype.h - the element types of safetensors, one row each (huggingface/safetensors, safetensors/src/tensor.rs).
 */
#ifndef SLICER_DTYPE_H
#define SLICER_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* In the order in which safetensors' own writer sorts tensors, last first: F4 comes after U64 in a file. */
enum sl_dtype {
	SL_BOOL,
	SL_F4,
	SL_F6_E2M3,
	SL_F6_E3M2,
	SL_U8,
	SL_I8,
	SL_F8_E5M2,
	SL_F8_E4M3,
	SL_F8_E8M0,
	SL_F8_E4M3FNUZ,
	SL_F8_E5M2FNUZ,
	SL_I16,
	SL_U16,
	SL_F16,
	SL_BF16,
	SL_I32,
	SL_U32,
	SL_F32,
	SL_C64,
	SL_F64,
	SL_I64,
	SL_U64,
	SL_N_DTYPES
};

struct sl_dtype_row {
	const char *name; /* as in a header */
	uint8_t bits;	  /* of one element */
	bool is_float;
	const char *numpy; /* descr of a .npy file; NULL: no numpy type, served as raw bytes ("|u1", "<u2") */
	const char *torch; /* the name in a config.json ("bfloat16"); NULL: no model has it as its dtype */
};

extern const struct sl_dtype_row sl_dtypes[SL_N_DTYPES];

/* The dtype of a header's string of `len` bytes, or -1. */
int sl_dtype_find(const char *name, size_t len);

/* Is it what unquantised weights are stored in: F16, BF16, F32, F64? */
static inline bool sl_dtype_is_plain(enum sl_dtype dtype)
{
	return dtype == SL_F16 || dtype == SL_BF16 || dtype == SL_F32 || dtype == SL_F64;
}

/* Bytes of `n` elements. The caller has checked that n * bits does not wrap and is whole bytes. */
static inline uint64_t sl_dtype_bytes(enum sl_dtype dtype, uint64_t n)
{
	return n * sl_dtypes[dtype].bits / 8;
}

#endif
