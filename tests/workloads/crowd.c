// crowd PER_SECOND MS [GROUPS [THREADS]]: contended critical sections at a steady rate, without using much CPU time. In each
// group THREADS threads share a lock; who has it sleeps until the next tick, so that nearly every acquisition waits. The
// first group's lock is `crowd_lock`, taken in `crowd_section`; the others' are in `other_locks`, taken in `other_section`.
#include "truth.h"
#include <sys/prctl.h>

#define MAX_GROUPS 16
#define MAX_THREADS_EACH 64

pthread_mutex_t crowd_lock = PTHREAD_MUTEX_INITIALIZER;
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

NAMED static void crowd_section(struct lock_truth *truth)
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
            crowd_section(truths[group]);
        else
            other_section(truths[group]);
        // Whoever waits gets it first.
        until(now_ns() + period_ns / 4);
    }
    thread_done();
    return arg;
}

int main(int argc, char **argv)
{
    static char names[MAX_GROUPS][32];
    period_ns = 1000000000u / (uint64_t)number(argc, argv, 1, 1000);
    uint64_t run_ns = (uint64_t)number(argc, argv, 2, 1000) * 1000000;
    long groups = number(argc, argv, 3, 1), threads = number(argc, argv, 4, 4);
    if (groups > MAX_GROUPS || threads > MAX_THREADS_EACH)
        die("groups", EINVAL);
    for (long g = 0; g < groups; g++) {
        MUST(pthread_mutex_init(&other_locks[g], NULL));
        if (g > 0)
            snprintf(names[g], sizeof names[g], "other_locks[%ld]", (long)g);
        truths[g] = g == 0 ? truth_of("crowd_lock", &crowd_lock) : truth_of(names[g], &other_locks[g]);
    }
    ready_and_go();
    end_ns = now_ns() + run_ns;
    pthread_t all[MAX_GROUPS * MAX_THREADS_EACH];
    long count = groups * threads;
    for (long i = 0; i < count; i++)
        MUST(pthread_create(&all[i], NULL, work, (void *)(intptr_t)(i % groups)));
    for (long i = 0; i < count; i++)
        MUST(pthread_join(all[i], NULL));
    return finish("crowd");
}
