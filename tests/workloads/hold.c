// hold ROUNDS WAITERS HOLD_US: in every round the holder keeps `cache_lock` until all waiters sleep for it, and then
// HOLD_US longer. Acquisitions and contention are exact; every wait lasts at least HOLD_US.
#include "truth.h"

#define MAX_WAITERS 16

pthread_mutex_t cache_lock = PTHREAD_MUTEX_INITIALIZER;

static struct lock_truth *truth;
static pthread_barrier_t held, round_over;
static _Atomic pid_t waiter_tid[MAX_WAITERS];
static long rounds, waiters;
static uint64_t hold_ns;

NAMED static void patient_waiter(void)
{
    struct section section;
    ACQUIRE(truth, &section);
    truth->contended++;
    RELEASE(truth, &section);
}

NAMED static void slow_holder(void)
{
    struct section section;
    ACQUIRE(truth, &section);
    pthread_barrier_wait(&held);
    for (long i = 0; i < waiters; i++)
        await_blocked(&waiter_tid[i], &cache_lock, sizeof cache_lock);
    uint64_t all_wait = now_ns();
    sleep_ns(hold_ns);
    truth->wait_min_ns += (uint64_t)waiters * (now_ns() - all_wait);
    RELEASE(truth, &section);
}

static void *waiter(void *arg)
{
    waiter_tid[(long)arg] = my_tid();
    for (long i = 0; i < rounds; i++) {
        pthread_barrier_wait(&held);
        patient_waiter();
        pthread_barrier_wait(&round_over);
    }
    thread_done();
    return NULL;
}

int main(int argc, char **argv)
{
    rounds = number(argc, argv, 1, 20);
    waiters = number(argc, argv, 2, 1);
    hold_ns = (uint64_t)number(argc, argv, 3, 5000) * 1000;
    if (waiters < 1 || waiters > MAX_WAITERS)
        die("hold", EINVAL);
    truth = truth_of("cache_lock", &cache_lock);
    fact("hold_ns", hold_ns);
    fact("rounds", (uint64_t)rounds);
    MUST(pthread_barrier_init(&held, NULL, (unsigned)waiters + 1));
    MUST(pthread_barrier_init(&round_over, NULL, (unsigned)waiters + 1));
    ready_and_go();
    pthread_t thread[MAX_WAITERS];
    for (long i = 0; i < waiters; i++)
        MUST(pthread_create(&thread[i], NULL, waiter, (void *)i));
    for (long i = 0; i < rounds; i++) {
        slow_holder();
        pthread_barrier_wait(&round_over);
    }
    for (long i = 0; i < waiters; i++)
        MUST(pthread_join(thread[i], NULL));
    thread_done();
    return finish("hold");
}
