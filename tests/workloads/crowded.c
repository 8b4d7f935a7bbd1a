// crowded LOCKS THREADS ROUNDS: many locks in one array. Each thread locks all of them ROUNDS times, beginning at a place of its own;
// then the main thread keeps the last one until another thread waits for it, and for HOLD_NS more, ROUNDS times.
// Facts: acquisitions, contended_at_least, wait_min_ns, call_ns.
#include "truth.h"

#define HOLD_NS 1000000

static pthread_mutex_t *locks;
static long count, threads, rounds;
static _Atomic uint64_t acquisitions, calls_ns;
static _Atomic pid_t tid;
static _Atomic long waits;

NAMED static void use(pthread_mutex_t *mutex)
{
    uint64_t called = now_ns();
    MUST(pthread_mutex_lock(mutex));
    calls_ns += now_ns() - called;
    acquisitions++;
    my_acquisitions++;
    MUST(pthread_mutex_unlock(mutex));
}

static void *worker(void *arg)
{
    long first = (long)arg * (count / threads);
    for (long j = 0; j < rounds; j++)
        for (long i = 0; i < count; i++)
            use(&locks[(first + i) % count]);
    thread_done();
    return NULL;
}

static void *waiter(void *arg)
{
    for (long i = 0; i < rounds; i++) {
        while (waits <= i)
            sleep_ns(20000);
        tid = my_tid();
        use(&locks[count - 1]);
        tid = 0;
        waits = -waits;
    }
    thread_done();
    return arg;
}

int main(int argc, char **argv)
{
    count = number(argc, argv, 1, 1000);
    threads = number(argc, argv, 2, 4);
    rounds = number(argc, argv, 3, 2);
    locks = calloc((size_t)count, sizeof *locks);
    for (long i = 0; i < count; i++)
        MUST(pthread_mutex_init(&locks[i], NULL));
    ready_and_go();
    pthread_t thread[64];
    if (threads < 1 || threads > 64)
        die("crowded", EINVAL);
    for (long i = 0; i < threads; i++)
        MUST(pthread_create(&thread[i], NULL, worker, (void *)i));
    for (long i = 0; i < threads; i++)
        MUST(pthread_join(thread[i], NULL));
    MUST(pthread_create(&thread[0], NULL, waiter, NULL));
    for (long i = 0; i < rounds; i++) {
        pthread_mutex_t *last = &locks[count - 1];
        MUST(pthread_mutex_lock(last));
        acquisitions++;
        my_acquisitions++;
        waits = i + 1;
        await_blocked(&tid, last, sizeof *last);
        sleep_ns(HOLD_NS);
        MUST(pthread_mutex_unlock(last));
        while (waits >= 0)
            sleep_ns(20000);
    }
    MUST(pthread_join(thread[0], NULL));
    thread_done();
    fact("acquisitions", acquisitions);
    fact("contended_at_least", (uint64_t)rounds);
    fact("wait_min_ns", (uint64_t)rounds * HOLD_NS);
    fact("call_ns", calls_ns);
    return finish("crowded");
}
