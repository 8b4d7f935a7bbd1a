// logged HOLD_US: in every round the holder keeps `logged_lock` until the waiter sleeps for it, and then HOLD_US longer. For each wait a
// line "wait CALLED ALL_WAIT RELEASING RETURNED" is printed at the end: CLOCK_MONOTONIC in ns when the waiter called, when it was seen to sleep, when
// the holder was about to give the lock back, and when the waiter's call had returned. So the wait began after CALLED and before ALL_WAIT, and ended after
// RELEASING and before RETURNED. Rounds go on until the next byte on stdin.
#include "truth.h"
#include <poll.h>

#define MAX_ROUNDS 100000

pthread_mutex_t logged_lock = PTHREAD_MUTEX_INITIALIZER;

static struct lock_truth *truth;
static pthread_barrier_t held, round_over;
static _Atomic pid_t waiter_tid;
static _Atomic bool over;
static struct {
    uint64_t called, all_wait, releasing, returned;
} waits[MAX_ROUNDS];
static long rounds;

NAMED static void logged_waiter(void)
{
    struct section section;
    ACQUIRE(truth, &section);
    truth->contended++;
    waits[rounds].called = section.called;
    waits[rounds].returned = section.acquired;
    RELEASE(truth, &section);
}

NAMED static void logged_holder(uint64_t hold_ns)
{
    struct section section;
    ACQUIRE(truth, &section);
    pthread_barrier_wait(&held);
    await_blocked(&waiter_tid, &logged_lock, sizeof logged_lock);
    waits[rounds].all_wait = now_ns();
    sleep_ns(hold_ns);
    waits[rounds].releasing = now_ns();
    truth->wait_min_ns += waits[rounds].releasing - waits[rounds].all_wait;
    RELEASE(truth, &section);
}

static void *waiter(void *arg)
{
    waiter_tid = my_tid();
    for (;;) {
        pthread_barrier_wait(&held);
        if (over)
            break;
        logged_waiter();
        pthread_barrier_wait(&round_over);
    }
    thread_done();
    return arg;
}

static bool is_asked_to_end(void)
{
    struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
    return poll(&in, 1, 0) != 0;
}

int main(int argc, char **argv)
{
    uint64_t hold_ns = (uint64_t)number(argc, argv, 1, 10000) * 1000;
    truth = truth_of("logged_lock", &logged_lock);
    MUST(pthread_barrier_init(&held, NULL, 2));
    MUST(pthread_barrier_init(&round_over, NULL, 2));
    ready_and_go();
    pthread_t thread;
    MUST(pthread_create(&thread, NULL, waiter, NULL));
    while (rounds < MAX_ROUNDS && !is_asked_to_end()) {
        logged_holder(hold_ns);
        pthread_barrier_wait(&round_over);
        rounds++;
    }
    over = true;
    pthread_barrier_wait(&held);
    MUST(pthread_join(thread, NULL));
    thread_done();
    for (long i = 0; i < rounds; i++)
        printf("wait %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", waits[i].called, waits[i].all_wait, waits[i].releasing,
               waits[i].returned);
    return finish("logged");
}
