<<<<<<< HEAD
// steady PER_SECOND MS [GROUPS [THREADS]]: contended critical sections at a steady rate, without using much CPU time. In each
// group THREADS threads share a lock; who has it sleeps until the next tick, so that nearly every acquisition waits. The
// first group's lock is `steady_lock`, taken in `steady_section`; the others' are in `other_locks`, taken in `other_section`.
#include "truth.h"
#include <sys/prctl.h>

#define MAX_GROUPS 16
#define MAX_THREADS_EACH 64

pthread_mutex_t steady_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t other_locks[MAX_GROUPS];

static uint64_t period_ns, end_ns;
static struct lock_truth *truths[MAX_GROUPS];

static void until(uint64_t at)
{
    struct timespec t = {.tv_sec = (time_t)(at / 1000000000u), .tv_nsec = (long)(at % 1000000000u)};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
}

static uint64_t next_tick(void)
{
    return (now_ns() / period_ns + 1) * period_ns;
}

NAMED static void steady_section(struct lock_truth *truth)
{
    struct section section;
    ACQUIRE(truth, &section);
    until(next_tick());
    RELEASE(truth, &section);
}

NAMED static void other_section(struct lock_truth *truth)
{
    struct section section;
    ACQUIRE(truth, &section);
    until(next_tick());
    RELEASE(truth, &section);
}

static void *work(void *arg)
{
    long group = (long)(intptr_t)arg;
    prctl(PR_SET_TIMERSLACK, 1);
    while (now_ns() < end_ns) {
        if (group == 0)
            steady_section(truths[group]);
        else
            other_section(truths[group]);
        // Whoever waits gets it first.
        until(now_ns() + period_ns / 4);
    }
    thread_done();
    return arg;
=======
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
>>>>>>> main
}

int main(int argc, char **argv)
{
<<<<<<< HEAD
    static char names[MAX_GROUPS][32];
    period_ns = 1000000000u / (uint64_t)number(argc, argv, 1, 1000);
    uint64_t run_ns = (uint64_t)number(argc, argv, 2, 1000) * 1000000;
    long groups = number(argc, argv, 3, 1), threads = number(argc, argv, 4, 4);
    if (groups > MAX_GROUPS || threads > MAX_THREADS_EACH)
        die("groups", EINVAL);
    for (long g = 0; g < groups; g++) {
        MUST(pthread_mutex_init(&other_locks[g], NULL));
        if (g > 0)
            snprintf(names[g], sizeof names[g], "other_locks+%#zx", (size_t)g * sizeof *other_locks);
        truths[g] = g == 0 ? truth_of("steady_lock", &steady_lock) : truth_of(names[g], &other_locks[g]);
    }
    ready_and_go();
    end_ns = now_ns() + run_ns;
    pthread_t all[MAX_GROUPS * MAX_THREADS_EACH];
    long count = groups * threads;
    for (long i = 0; i < count; i++)
        MUST(pthread_create(&all[i], NULL, work, (void *)(intptr_t)(i % groups)));
    for (long i = 0; i < count; i++)
        MUST(pthread_join(all[i], NULL));
=======
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
>>>>>>> main
    return finish("steady");
}
