/*
 * test_options.c - what -o accepts, where it goes, and what it says of the rest.
 */
#include "fs/device.h"
#include "fs/mountinfo.h"
#include "fs/options.h"
#include "fs/slot.h"
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#define LEN(a) (sizeof(a) / sizeof((a)[0]))

static int parse(struct options *options, const char *text, struct sl_error *err)
{
	*err = (struct sl_error)SL_ERROR_INIT;
	options_init(options);
	return options_parse(options, text, err);
}

Test(options, values)
{
	struct options options;
	struct sl_error err;
	struct tree_options tree;

	cr_assert_eq(parse(&options, "tp=8,engine=vllm,part=256M,format=mistral,ra=1024,threads=3,memory=memfd", &err),
		     0, "%s", err.text);
	cr_assert_eq(options.tp, 8);
	cr_assert_eq(options.part_bytes, UINT64_C(256) << 20);
	cr_assert_eq(options.read_ahead_kb, 1024);
	cr_assert_eq(options.threads, 3);
	cr_assert_eq(options.memory, SLOTS_MEMFD);
	cr_assert_eq(options_for_model(&options).format, SL_FORMAT_MISTRAL);
	tree = options_for_tree(&options, "/mnt");
	cr_assert_str_eq(tree.engine, "vllm");
	cr_assert_str_eq(tree.layout, "tp8");
	cr_assert_str_eq(tree.mountpoint, "/mnt");
	cr_assert_eq(tree.view.part_bytes, UINT64_C(256) << 20);
}

Test(options, defaults)
{
	struct options options;
	struct sl_error err;
	struct tree_options tree;

	cr_assert_eq(parse(&options, "", &err), 0);
	tree = options_for_tree(&options, NULL);
	cr_assert_null(tree.engine);
	cr_assert_null(tree.layout);
	cr_assert_eq(options.read_ahead_kb, OPTIONS_AUTO);
	cr_assert_eq(options_for_model(&options).format, SL_FORMAT_AUTO);
	cr_assert_str_eq(options.mount, "");
}

Test(options, sizes)
{
	static const struct {
		const char *text;
		uint64_t bytes;
	} sizes[] = {
		{ "part=1048576", 1u << 20 },	  { "part=1024K", 1u << 20 },	    { "part=1m", 1u << 20 },
		{ "part=2G", UINT64_C(2) << 30 }, { "part=1T", UINT64_C(1) << 40 },
	};

	for (size_t i = 0; i < LEN(sizes); i++) {
		struct options options;
		struct sl_error err;

		cr_assert_eq(parse(&options, sizes[i].text, &err), 0, "%s: %s", sizes[i].text, err.text);
		cr_assert_eq(options.part_bytes, sizes[i].bytes, "%s", sizes[i].text);
	}
}

Test(options, devices)
{
	static const struct {
		const char *text;
		uint64_t device;
	} devices[] = {
		{ "", DEVICE_CPU },
		{ "device=cpu", DEVICE_CPU },
		{ "device=auto", DEVICE_AUTO },
		{ "device=cuda", DEVICE_CUDA },
		{ "device=0", DEVICE_NUMBER },
		{ "device=63", DEVICE_NUMBER + 63 },
	};

	for (size_t i = 0; i < LEN(devices); i++) {
		struct options options;
		struct sl_error err;

		cr_assert_eq(parse(&options, devices[i].text, &err), 0, "%s: %s", devices[i].text, err.text);
		cr_assert_eq(options.device, devices[i].device, "%s", devices[i].text);
	}
}

/* What mount(8) and fstab bring along. */
Test(options, fstab)
{
	static const char *const texts[] = {
		"rw,suid,dev,exec,auto,nouser,async",
		"ro,nosuid,nodev,noatime,nofail,_netdev,x-systemd.mount-timeout=60,x-systemd.requires=a.service",
		"defaults,noauto,users,user=joe,owner,group,comment=a b c,X-mount.mkdir,relatime,strictatime,lazytime",
		",,ro,,tp=2,",
	};

	for (size_t i = 0; i < LEN(texts); i++) {
		struct options options;
		struct sl_error err;

		cr_assert_eq(parse(&options, texts[i], &err), 0, "%s: %s", texts[i], err.text);
		cr_assert_str_eq(options.mount, "", "%s", texts[i]);
	}
}

Test(options, goes_to_the_mount)
{
	struct options options;
	struct sl_error err;

	cr_assert_eq(parse(&options, "rw,noexec,context=a\\,b\\\\c,ra=0,allow_other", &err), 0, "%s", err.text);
	cr_assert_str_eq(options.mount, "noexec,context=a\\,b\\\\c");
	cr_assert_eq(options.allow_other, 1);
	cr_assert_eq(options.allow_root, 0);
}

/* To add a refused text: it, and what the message must say. */
/* clang-format off */
static const struct {
	const char *text, *says;
} refused[] = {
	{ "tensor_parallel=8", "option 'tensor_parallel' is not known" },
	{ "a\\,b", "option 'a,b' is not known" },
	{ "=8", "option '' is not known" },
	{ "tp", "option 'tp': wanted is a number from 1 to 1024" },
	{ "tp=", "option 'tp=': wanted is a number from 1 to 1024" },
	{ "memory=disk", "option 'memory=disk': wanted is huge, tmpfs, memfd" },
	{ "tp=0", "option 'tp=0': wanted is a number from 1 to 1024" },
	{ "tp=-1", "option 'tp=-1'" },
	{ "tp=8x", "option 'tp=8x'" },
	{ "tp= 8", "option 'tp= 8'" },
	{ "tp=99999999999999999999999", "from 1 to 1024" },
	{ "tp=8,ro,tp=4", "option 'tp' is given twice, the second time as '4'" },
	{ "part=1", "option 'part=1': wanted is a size from 1M to 1T" },
	{ "part=1GB", "a size from 1M to 1T" },
	{ "part=G", "a size from 1M to 1T" },
	{ "part=99999999999T", "a size from 1M to 1T" },
	{ "format=gguf", "option 'format=gguf': wanted is auto, hf, mistral" },
	{ "engine=ollama", "option 'engine=ollama': wanted is vllm" },
	{ "ra=1048577", "a number from 0 to 1048576" },
	{ "threads=0", "a number from 1 to 1024" },
	{ "device=gpu", "option 'device=gpu': wanted is cpu, auto, cuda, or a number from 0 to 63" },
	{ "device=64", "a number from 0 to 63" },
	{ "device=-1", "a number from 0 to 63" },
	{ "device=0x", "a number from 0 to 63" },
	{ "device", "option 'device': wanted is cpu" },
	{ "gpu=sm75", "option 'gpu=sm75': wanted is sm80, sm89, sm90, sm100" },
	{ "remount,ro", "option 'remount': a mount cannot change" },
	{ "direct_io", "option 'direct_io': engines map" },
	{ "tp=\x1b[31m", "option 'tp=\\x1b[31m'" },
};
/* clang-format on */

Test(options, refuses)
{
	for (size_t i = 0; i < LEN(refused); i++) {
		struct options options;
		struct sl_error err;

		cr_assert_eq(parse(&options, refused[i].text, &err), -EINVAL, "%s", refused[i].text);
		cr_assert(strstr(err.text, refused[i].says), "%s: %s", refused[i].text, err.text);
		cr_assert_null(strchr(err.text, '\n'), "%s", refused[i].text);
	}
}

/* Several -o are one; saying a thing twice is no contradiction. */
Test(options, add_up)
{
	struct options options;
	struct sl_error err;

	cr_assert_eq(parse(&options, "tp=8,part=1G", &err), 0);
	cr_assert_eq(options_parse(&options, "tp=8,part=1024M,noexec", &err), 0, "%s", err.text);
	cr_assert_eq(options_parse(&options, "tp=2", &err), -EINVAL);
}

Test(options, too_long)
{
	struct options options;
	struct sl_error err;
	char text[4096] = "context=";

	memset(text + 8, 'a', 900);
	cr_assert_eq(parse(&options, text, &err), 0, "%s", err.text);
	cr_assert_eq(options_parse(&options, text, &err), -EINVAL);
	cr_assert(strstr(err.text, "longer than 1023 bytes"), "%s", err.text);
	memset(text + 8, 'a', 2000);
	cr_assert_eq(parse(&options, text, &err), -EINVAL);
	cr_assert(strstr(err.text, "an option of 2008 bytes"), "%s", err.text);
}

Test(mountinfo, parse)
{
	char line[] =
		"36 35 0:52 / /mnt/a\\040b ro,nosuid shared:1 master:2 - fuse.rankfs /models/\\134x ro,user_id=0\n";
	struct mountinfo info;

	cr_assert(mountinfo_parse(line, &info));
	cr_assert_eq(info.major, 0);
	cr_assert_eq(info.minor, 52);
	cr_assert_str_eq(info.mountpoint, "/mnt/a b");
	cr_assert_str_eq(info.fstype, "fuse.rankfs");
	cr_assert_str_eq(info.source, "/models/\\x");
}

Test(mountinfo, no_line)
{
	static const char *const texts[] = {
		"", "\n", "1 2 3", "36 35 a:b / /mnt - x y z", "36 35 0:52 / /mnt ro", "1 2 0:1 / /a -"
	};

	for (size_t i = 0; i < LEN(texts); i++) {
		struct mountinfo info;
		char line[64];

		strcpy(line, texts[i]);
		cr_assert_not(mountinfo_parse(line, &info), "%s", texts[i]);
	}
}
