/*
 * guard.c - a handler of SIGBUS that jumps back into guard_run().
 *
 * SIGBUS of a page fault comes to the thread that touched the page, between two of its instructions, so jumping out of the
 * handler is as safe as a goto. The mask of signals is restored by the jump: SIGBUS is blocked within the handler.
 */
#include "fs/guard.h"
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>

struct guarded {
	const struct guard_range *ranges;
	size_t n;
	struct guard_range more;
	sigjmp_buf back;
};

static __thread struct guarded *volatile guarded;

static bool is_in(const struct guard_range *range, const unsigned char *at)
{
	return at >= range->start && at < range->start + range->len;
}

static bool is_guarded(const struct guarded *g, const unsigned char *at)
{
	for (size_t i = 0; i < g->n; i++)
		if (is_in(&g->ranges[i], at))
			return true;
	return is_in(&g->more, at);
}

static void on_sigbus(int sig, siginfo_t *info, void *context)
{
	struct guarded *g = guarded;

	(void)context;
	if (g && is_guarded(g, info->si_addr))
		siglongjmp(g->back, 1);
	signal(sig, SIG_DFL); /* the instruction faults again, for good */
}

int guard_install(struct sl_error *err)
{
	struct sigaction action = { .sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO };

	if (sigaction(SIGBUS, &action, NULL))
		return sl_fail(err, errno, "cannot handle SIGBUS: %s", strerror(errno));
	return 0;
}

int guard_run(const struct guard_range *ranges, size_t n, struct guard_range more, guard_fn *fn, void *context)
{
	struct guarded g = { .ranges = ranges, .n = n, .more = more };
	int rc;

	if (sigsetjmp(g.back, 1)) {
		guarded = NULL;
		return -EFAULT;
	}
	guarded = &g;
	rc = fn(context);
	guarded = NULL;
	return rc;
}
