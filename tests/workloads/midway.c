// midway CLEAN HOLD_MS: when it says "ready", a holder has `busy_lock` already and a waiter sleeps for it. After "go" it
// is held HOLD_MS longer; then holder and waiter let it go, and the waiter takes it CLEAN times more. Only these
// (and `fresh_lock`, taken as often) are complete acquisitions for an observer that came in between.
#include "truth.h"

pthread_mutex_t busy_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t fresh_lock = PTHREAD_MUTEX_INITIALIZER;

static struct lock_truth *busy, *fresh;
static _Atomic pid_t waiter_tid;
static long clean;

NAMED static void once(struct lock_truth *truth)
{
    struct section section;
    ACQUIRE(truth, &section);
    RELEASE(truth, &section);
}

static void *waiter(void *arg)
{
    waiter_tid = my_tid();
    MUST(pthread_mutex_lock(&busy_lock));
    MUST(pthread_mutex_unlock(&busy_lock));
    for (long i = 0; i < clean; i++) {
        once(busy);
        once(fresh);
    }
    thread_done();
    return arg;
}

int main(int argc, char **argv)
{
    clean = number(argc, argv, 1, 100);
    uint64_t hold_ns = (uint64_t)number(argc, argv, 2, 200) * 1000000;
    busy = truth_of("busy_lock", &busy_lock);
    fresh = truth_of("fresh_lock", &fresh_lock);
    pthread_t thread;
    MUST(pthread_mutex_lock(&busy_lock));
    MUST(pthread_create(&thread, NULL, waiter, NULL));
    await_blocked(&waiter_tid, &busy_lock, sizeof busy_lock);
    ready_and_go();
    sleep_ns(hold_ns);
    MUST(pthread_mutex_unlock(&busy_lock));
    MUST(pthread_join(thread, NULL));
    thread_done();
    fact("waiter_tid", (uint64_t)waiter_tid);
    return finish("midway");
}
