/*
 * account.h - what became of each tensor of a checkpoint in one layout: over how many ranks it lies, and why one is held by
 * none. Ranks are added one by one; what is kept is a few bytes a tensor.
 */
#ifndef FS_ACCOUNT_H
#define FS_ACCOUNT_H

#include "fs/origin.h"
#include "fs/print.h"
#include "slicer/error.h"
#include "slicer/model.h"
#include "slicer/view.h"

struct account;

int account_open(struct account **out, const struct sl_model *model, const struct sl_engine *engine,
		 struct sl_error *err) SL_MUST_CHECK;
void account_close(struct account *account);

/* Add one rank. */
void account_add(struct account *account, const struct sl_view *view);

/* Bytes of zeros that fill a tensor up, and are not all of it. */
uint64_t account_padding(const struct sl_output *output);

/* Tell it, as lines or as members of a JSON object. */
void account_print(const struct account *account);
void account_write(const struct account *account, struct json_writer *json);

#endif
