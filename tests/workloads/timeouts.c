// timeouts TIMED CLOCKED: while a holder keeps `busy_lock`, TIMED timedlock and CLOCKED clocklock calls time out after
// 2 ms each, as many again whose deadline has passed already time out at once, and one call of each kind is refused
// for a malformed deadline. Then one call of each kind succeeds.
#include "truth.h"

pthread_mutex_t busy_lock = PTHREAD_MUTEX_INITIALIZER;

static struct lock_truth *truth;
static pthread_barrier_t held, tried;

static struct timespec in_ms(clockid_t clock, long ms)
{
    struct timespec t;
    clock_gettime(clock, &t);
    int64_t ns = (int64_t)t.tv_nsec + ms * 1000000;
    t.tv_sec += ns / 1000000000 - (ns < 0);
    t.tv_nsec = (ns + 1000000000) % 1000000000;
    return t;
}

static void *holder(void *arg)
{
    struct section section;
    ACQUIRE(truth, &section);
    pthread_barrier_wait(&held);
    pthread_barrier_wait(&tried);
    RELEASE(truth, &section);
    thread_done();
    return arg;
}

NAMED static void wait_in_vain(long timed, long clocked, long ms)
{
    for (long i = 0; i < timed; i++) {
        struct timespec deadline = in_ms(CLOCK_REALTIME, ms);
        FAIL_BY(truth, timeouts, ETIMEDOUT, pthread_mutex_timedlock(&busy_lock, &deadline));
    }
    for (long i = 0; i < clocked; i++) {
        struct timespec deadline = in_ms(CLOCK_MONOTONIC, ms);
        FAIL_BY(truth, timeouts, ETIMEDOUT, pthread_mutex_clocklock(&busy_lock, CLOCK_MONOTONIC, &deadline));
    }
}

NAMED static void malformed(void)
{
    struct timespec never = {.tv_sec = 0, .tv_nsec = -1};
    FAIL_BY(truth, errors, EINVAL, pthread_mutex_timedlock(&busy_lock, &never));
    FAIL_BY(truth, errors, EINVAL, pthread_mutex_clocklock(&busy_lock, CLOCK_MONOTONIC, &never));
}

NAMED static void in_time(void)
{
    struct section section;
    struct timespec deadline = in_ms(CLOCK_REALTIME, 60000);
    ACQUIRE_BY(truth, &section, pthread_mutex_timedlock(&busy_lock, &deadline));
    RELEASE(truth, &section);
    deadline = in_ms(CLOCK_MONOTONIC, 60000);
    ACQUIRE_BY(truth, &section, pthread_mutex_clocklock(&busy_lock, CLOCK_MONOTONIC, &deadline));
    RELEASE(truth, &section);
}

int main(int argc, char **argv)
{
    long timed = number(argc, argv, 1, 20), clocked = number(argc, argv, 2, 10);
    truth = truth_of("busy_lock", &busy_lock);
    MUST(pthread_barrier_init(&held, NULL, 2));
    MUST(pthread_barrier_init(&tried, NULL, 2));
    ready_and_go();
    pthread_t thread;
    MUST(pthread_create(&thread, NULL, holder, NULL));
    pthread_barrier_wait(&held);
    wait_in_vain(timed, clocked, 2);
    wait_in_vain(timed, clocked, -2);
    malformed();
    pthread_barrier_wait(&tried);
    MUST(pthread_join(thread, NULL));
    in_time();
    thread_done();
    return finish("timeouts");
}
