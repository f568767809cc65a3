/*
 * cmd_cat.c - rankfs cat SOURCE PATH: one virtual file to the standard output; no mount, no FUSE.
 */
#include "fs/arguments.h"
#include "fs/command.h"
#include "fs/copy.h"

#include <errno.h>
#include <unistd.h>

static int copy_node(struct tree *tree, struct node *node, struct sl_error *err)
{
	struct handle handle;
	struct copier copier;
	int rc = handle_open(&handle, tree, node, err);

	if (rc)
		return rc;
	rc = copier_init(&copier, STDOUT_FILENO, err);
	if (rc == 0)
		rc = copier_run(&copier, &handle, err);
	copier_release(&copier);
	handle_close(&handle);
	return rc;
}

static int run(struct target *target, const struct arguments *arguments, struct sl_error *err)
{
	const char *path = arguments->positional[1];
	struct node *node;
	int rc = target_open(target, arguments, err);

	if (rc == 0)
		rc = tree_path(target->tree, path, &node, err);
	if (rc)
		return rc;
	rc = copy_node(target->tree, node, err);
	return rc && err->errnum ? sl_error_prefix(err, "%s", SL_ESC(path)) : rc;
}

int cmd_cat(int argc, char **argv)
{
	const struct argument_rules rules = { .min = 2, .max = 2 };
	struct arguments arguments;
	struct target target = { 0 };
	struct sl_error err = SL_ERROR_INIT;
	int rc;

	if (arguments_parse(&arguments, argc, argv, &rules, &err))
		return options_fail(&err);
	rc = run(&target, &arguments, &err);
	target_close(&target);
	/* A reader that has seen enough is no error. */
	return rc == 0 || rc == -EPIPE ? EXIT_OK : command_fail(&err);
}
