// condvar IDLE REACQUIRE TIMEOUTS: a consumer waits on `queue_ready`.
//   IDLE rounds: woken after 2 ms of idle waiting by a producer that has let `queue_lock` go: no contention.
//   REACQUIRE rounds: woken by a producer that keeps the lock until the consumer sleeps for it, and 2 ms longer:
//   the re-acquisition inside pthread_cond_wait is contended, exactly once a round.
//   TIMEOUTS waits end by their deadline: no contention.
// The idle time (`idle_min_ns`, at least) is neither waiting for the lock nor holding it.
#include "truth.h"

pthread_mutex_t queue_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t queue_ready = PTHREAD_COND_INITIALIZER;

static struct lock_truth *truth;
static _Atomic pid_t consumer_tid;
static _Atomic uint64_t cond_waits;
static pthread_barrier_t round_over;
static long items, rounds, timeouts;

NAMED static void consume(void)
{
    struct section section;
    ACQUIRE(truth, &section);
    while (items == 0) {
        cond_waits++;
        COND_WAIT(truth, &section, &queue_ready);
    }
    items--;
    RELEASE(truth, &section);
}

NAMED static void wait_for_deadline(void)
{
    struct timespec deadline;
    clock_gettime(CLOCK_MONOTONIC, &deadline);
    deadline.tv_nsec += 2000000;
    if (deadline.tv_nsec >= 1000000000) {
        deadline.tv_sec++;
        deadline.tv_nsec -= 1000000000;
    }
    struct section section;
    ACQUIRE(truth, &section);
    cond_waits++;
    COND_WAIT_BY(truth, &section, ETIMEDOUT,
                 pthread_cond_clockwait(&queue_ready, &queue_lock, CLOCK_MONOTONIC, &deadline));
    RELEASE(truth, &section);
}

static void *consumer(void *arg)
{
    consumer_tid = my_tid();
    for (long i = 0; i < rounds; i++) {
        consume();
        pthread_barrier_wait(&round_over);
    }
    for (long i = 0; i < timeouts; i++)
        wait_for_deadline();
    thread_done();
    return arg;
}

// Returns how long the consumer was certainly idle.
NAMED static uint64_t produce(bool keep_lock)
{
    await_blocked(&consumer_tid, &queue_ready, sizeof queue_ready);
    uint64_t idle_since = now_ns();
    sleep_ns(2000000);
    struct section section;
    ACQUIRE(truth, &section);
    items++;
    uint64_t idle_until = now_ns();
    if (keep_lock) {
        MUST(pthread_cond_signal(&queue_ready));
        await_blocked(&consumer_tid, &queue_lock, sizeof queue_lock);
        uint64_t waits = now_ns();
        sleep_ns(2000000);
        truth->wait_min_ns += now_ns() - waits;
        truth->contended++;
    }
    RELEASE(truth, &section);
    if (!keep_lock)
        MUST(pthread_cond_signal(&queue_ready));
    return idle_until - idle_since;
}

int main(int argc, char **argv)
{
    long idle = number(argc, argv, 1, 20), reacquire = number(argc, argv, 2, 20);
    timeouts = number(argc, argv, 3, 10);
    rounds = idle + reacquire;
    truth = truth_of("queue_lock", &queue_lock);
    MUST(pthread_barrier_init(&round_over, NULL, 2));
    ready_and_go();
    pthread_t thread;
    uint64_t idle_min_ns = 0;
    MUST(pthread_create(&thread, NULL, consumer, NULL));
    for (long i = 0; i < rounds; i++) {
        idle_min_ns += produce(i >= idle);
        pthread_barrier_wait(&round_over);
    }
    MUST(pthread_join(thread, NULL));
    thread_done();
    fact("idle_min_ns", idle_min_ns);
    fact("cond_waits", cond_waits);
    fact("cond_addr", (uint64_t)(uintptr_t)&queue_ready);
    return finish("condvar");
}
