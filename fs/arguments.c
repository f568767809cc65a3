/*
 * arguments.c - one parser for the commands' arguments, one way to fail.
 */
#include "fs/arguments.h"
#include "fs/cachedir.h"
#include "fs/command.h"
#include "slicer/arch.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

int command_fail(const struct sl_error *err)
{
	fprintf(stderr, "rankfs: %s\n", err->text);
	switch (err->errnum) {
	case EACCES:
	case EPERM:
		return EXIT_USAGE;
	case ENOMEM:
	case EIO:
	case ENOSPC:
	case EDQUOT:
	case EFBIG:
	case EMFILE:
	case ENFILE:
	case EROFS:
	case ENODEV:
	case EAGAIN:
		return EXIT_SYSTEM;
	default:
		return EXIT_REFUSED;
	}
}

static int set_jobs(struct arguments *arguments, const char *text, struct sl_error *err)
{
	char *end;
	unsigned long jobs = strtoul(text, &end, 10);

	if (*text < '0' || *text > '9' || *end || jobs < 1 || jobs > MAX_JOBS)
		return sl_fail(err, EINVAL, "--jobs %s: a number from 1 to %d is wanted", SL_ESC(text), MAX_JOBS);
	arguments->jobs = (unsigned)jobs;
	return 0;
}

static int parse_flag(struct arguments *arguments, int flag, char *const *argv, unsigned allowed, struct sl_error *err)
{
	static const struct {
		int letter;
		unsigned flag;
	} needs[] = { { 'J', ARGUMENT_JSON }, { 'F', ARGUMENT_FORCE }, { 'S', ARGUMENT_SYNC }, { 'j', ARGUMENT_JOBS } };

	for (size_t i = 0; i < sizeof(needs) / sizeof(needs[0]); i++) {
		if (needs[i].letter == flag && !(allowed & needs[i].flag))
			flag = '?';
	}
	arguments->json |= flag == 'J';
	arguments->force |= flag == 'F';
	arguments->sync |= flag == 'S';
	if (flag == 'o')
		return options_parse(&arguments->options, optarg, err);
	if (flag == 'j')
		return set_jobs(arguments, optarg, err);
	if (flag == ':')
		return sl_fail(err, EINVAL, "%s wants an argument", SL_ESC(argv[optind - 1]));
	if (flag == '?')
		return sl_fail(err, EINVAL, "%s: no such flag ('rankfs %s --help' lists them)",
			       SL_ESC(argv[optind - 1]), argv[0]);
	return 0;
}

int arguments_parse(struct arguments *arguments, int argc, char **argv, const struct argument_rules *rules,
		    struct sl_error *err)
{
	static const struct option long_options[] = {
		{ "json", no_argument, NULL, 'J' },
		{ "force", no_argument, NULL, 'F' },
		{ "sync", no_argument, NULL, 'S' },
		{ "jobs", required_argument, NULL, 'j' },
		{ NULL, 0, NULL, 0 },
	};
	int flag, rc = 0;

	*arguments = (struct arguments){ 0 };
	options_init(&arguments->options);
	opterr = 0;
	optind = 0; /* glibc: start anew */
	while (rc == 0 && (flag = getopt_long(argc, argv, ":o:j:", long_options, NULL)) != -1)
		rc = parse_flag(arguments, flag, argv, rules->flags, err);
	if (rc)
		return rc;
	if (argc - optind < rules->min)
		return sl_fail(err, EINVAL, "%s: an argument is missing ('rankfs %s --help' tells which)", argv[0],
			       argv[0]);
	if (argc - optind > rules->max)
		return sl_fail(err, EINVAL, "%s: '%s' is one argument too many ('rankfs %s --help' tells which)",
			       argv[0], SL_ESC(argv[optind + rules->max]), argv[0]);
	for (int i = 0; optind + i < argc; i++)
		arguments->positional[i] = argv[optind + i];
	if (rules->min > 0)
		device_default_gpu(&arguments->options);
	return 0;
}

int target_open(struct target *target, const struct arguments *arguments, struct sl_error *err)
{
	const struct tree_options for_tree = options_for_tree(&arguments->options, NULL);
	struct cachedir cachedir;
	int rc;

	*target = (struct target){ 0 };
	rc = device_open(&target->device, &arguments->options, err);
	if (!rc)
		rc = cachedir_open_model(&cachedir, &target->model, arguments->positional[0], &arguments->options, err);
	if (rc)
		return rc;
	device_use(target->device, target->model);
	return tree_open(&target->tree, target->model, &for_tree, err);
}

void target_close(struct target *target)
{
	tree_close(target->tree);
	if (target->model)
		sl_model_close(target->model);
	device_close(target->device);
}

const char *target_architecture(const struct target *target)
{
	const struct sl_model *model = target->model;

	return model->config.architecture ? model->config.architecture : model->arch->family;
}

void target_print_notes(const struct target *target, FILE *out)
{
	for (const struct sl_note *note = target->model->notes; note; note = note->next)
		fprintf(out, "note: %s\n", note->text);
}
