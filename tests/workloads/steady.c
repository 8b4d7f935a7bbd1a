// steady [RATE] [SECONDS] [HOLD_NS]: one thread takes `steady_lock` RATE times a second (0: as fast as it can) and holds it
// for HOLD_NS, never contended. It computes between sections, so its CPU time is all of its time. What falls behind is left out.
//
// Facts: those of the holds, and duration_ns.
#include "truth.h"
#include "holds.h"

pthread_mutex_t steady_lock = PTHREAD_MUTEX_INITIALIZER;

static struct lock_truth *truth;
static struct own_truth own;
static uint64_t hold_ticks;

NAMED static void steady_section(void)
{
    SHORT_SECTION(truth, &own, hold_ticks);
}

int main(int argc, char **argv)
{
    uint64_t rate = (uint64_t)number(argc, argv, 1, 20000);
    uint64_t duration_ns = (uint64_t)number(argc, argv, 2, 3) * 1000000000;
    prepare();
    hold_ticks = ticks_of((uint64_t)number(argc, argv, 3, 1000));
    uint64_t every = rate ? ticks_of(1000000000 / rate) : 0;
    truth = truth_of("steady_lock", &steady_lock);
    keep_company();
    ready_and_go();
    uint64_t begin = ticks(), end = begin + ticks_of(duration_ns);
    for (uint64_t next = begin; next < end; next = ticks()) {
        steady_section();
        busy_ticks(next, every);
    }
    fact("duration_ns", ns_of(ticks() - begin));
    settle(truth, &own);
    thread_done();
    hold_facts();
    return finish("steady");
}
