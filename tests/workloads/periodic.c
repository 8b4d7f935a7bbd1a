// periodic [PERIOD_MS] [PERIODS] [busy|sleep] [PHASE_PERCENT]: all locking happens in the first PHASE_PERCENT (10) of each
// period: a section of `phase_lock` of 5 us every 20 us. The rest of the period is spent computing or asleep. An observer
// whose windows kept the period's pace would see all of it or nothing.
//
// Facts: those of the holds, and duration_ns.
#include "truth.h"
#include "holds.h"

#define EVERY_NS 20000
#define HOLD_NS 5000

pthread_mutex_t phase_lock = PTHREAD_MUTEX_INITIALIZER;

static struct lock_truth *truth;
static struct own_truth own;

NAMED static void phase_section(void)
{
    SHORT_SECTION(truth, &own, ticks_of(HOLD_NS));
}

// What falls behind is left out, not made up for: the rate is never above one section in EVERY_NS.
NAMED static void locking_phase(uint64_t end)
{
    for (uint64_t next = now_ns(); next < end; next = now_ns()) {
        phase_section();
        busy_until(next + EVERY_NS);
    }
}

int main(int argc, char **argv)
{
    uint64_t period_ns = (uint64_t)number(argc, argv, 1, 500) * 1000000;
    long periods = number(argc, argv, 2, 8);
    bool busy = argc <= 3 || strcmp(argv[3], "sleep") != 0;
    uint64_t phase_ns = period_ns / 100 * (uint64_t)number(argc, argv, 4, 10);
    truth = truth_of("phase_lock", &phase_lock);
    prepare();
    keep_company();
    ready_and_go();
    uint64_t begin = now_ns();
    for (long i = 0; i < periods; i++) {
        uint64_t from = begin + (uint64_t)i * period_ns;
        locking_phase(from + phase_ns);
        uint64_t now = now_ns(), end = from + period_ns;
        if (busy)
            busy_until(end);
        else if (now < end)
            sleep_ns(end - now);
    }
    fact("duration_ns", now_ns() - begin);
    settle(truth, &own);
    thread_done();
    hold_facts();
    return finish("periodic");
}
