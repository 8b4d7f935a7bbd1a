// rwlock THREADS ROUNDS: read-write locks.
//   table_lock   every thread reads it ROUNDS times, and writes it in every eighth round; then it is read ROUNDS times by one
//                that reads it three times at once, which is one critical section; nobody is kept waiting on purpose
//   config_lock  waited for by design, ROUNDS times each: a reader while it is written, a writer while it is read, a writer
//                while two read it
//   tried_lock   calls that fail: tries while others have it, deadlines that pass, its own writer asking again (EDEADLK)
// Facts: reads, writes (of table_lock), reader_waits_ns and writer_waits_ns (of config_lock: waited for at least).
#include "truth.h"

#define HOLD_NS 1000000

pthread_rwlock_t table_lock = PTHREAD_RWLOCK_INITIALIZER;
pthread_rwlock_t config_lock = PTHREAD_RWLOCK_INITIALIZER;
pthread_rwlock_t tried_lock = PTHREAD_RWLOCK_INITIALIZER;

static struct lock_truth *table, *config, *tried;
static long rounds;
static _Atomic uint64_t reads, writes;
static _Atomic pid_t partner_tid;
static pthread_barrier_t step;

NAMED static void lookup(bool twice)
{
    struct section section;
    ACQUIRE_BY(table, &section, pthread_rwlock_rdlock(&table_lock));
    if (twice) {
        MUST(pthread_rwlock_rdlock(&table_lock));
        MUST(pthread_rwlock_tryrdlock(&table_lock));
        MUST(pthread_rwlock_unlock(&table_lock));
        MUST(pthread_rwlock_unlock(&table_lock));
    }
    RELEASE_BY(table, &section, pthread_rwlock_unlock(&table_lock));
    reads++;
}

NAMED static void store(void)
{
    struct section section;
    ACQUIRE_BY(table, &section, pthread_rwlock_wrlock(&table_lock));
    RELEASE_BY(table, &section, pthread_rwlock_unlock(&table_lock));
    writes++;
}

static void *worker(void *arg)
{
    for (long i = 0; i < rounds; i++) {
        lookup(false);
        if (i % 8 == 0)
            store();
    }
    thread_done();
    return arg;
}

NAMED static void read_config(void)
{
    struct section section;
    ACQUIRE_BY(config, &section, pthread_rwlock_rdlock(&config_lock));
    RELEASE_BY(config, &section, pthread_rwlock_unlock(&config_lock));
}

NAMED static void write_config(void)
{
    struct section section;
    ACQUIRE_BY(config, &section, pthread_rwlock_wrlock(&config_lock));
    RELEASE_BY(config, &section, pthread_rwlock_unlock(&config_lock));
}

// Waits for what the main thread holds.
static void *partner(void *arg)
{
    partner_tid = my_tid();
    for (long i = 0; i < rounds; i++) {
        pthread_barrier_wait(&step);
        read_config();
        config->contended++;
        pthread_barrier_wait(&step);
        for (int readers = 1; readers <= 2; readers++) {
            pthread_barrier_wait(&step);
            write_config();
            config->contended++;
            pthread_barrier_wait(&step);
        }
    }
    thread_done();
    return arg;
}

// The second reader.
static _Atomic bool second_reads, second_leaves;
static void *second(void *arg)
{
    for (long i = 0; i < rounds; i++) {
        while (!second_leaves)
            sleep_ns(20000);
        second_leaves = false;
        struct section section;
        ACQUIRE_BY(config, &section, pthread_rwlock_rdlock(&config_lock));
        second_reads = true;
        while (!second_leaves)
            sleep_ns(20000);
        RELEASE_BY(config, &section, pthread_rwlock_unlock(&config_lock));
        second_leaves = false;
        second_reads = false;
    }
    thread_done();
    return arg;
}

// Keeps the partner waiting for some time.
static uint64_t keep_waiting(void)
{
    pthread_barrier_wait(&step);
    await_blocked(&partner_tid, &config_lock, sizeof config_lock);
    uint64_t from = now_ns();
    sleep_ns(HOLD_NS);
    uint64_t waited = now_ns() - from;
    config->wait_min_ns += waited;
    return waited;
}

static void contended(void)
{
    uint64_t reader_ns = 0, writer_ns = 0;
    for (long i = 0; i < rounds; i++) {
        struct section section;
        ACQUIRE_BY(config, &section, pthread_rwlock_wrlock(&config_lock));
        reader_ns += keep_waiting();
        RELEASE_BY(config, &section, pthread_rwlock_unlock(&config_lock));
        pthread_barrier_wait(&step);

        ACQUIRE_BY(config, &section, pthread_rwlock_rdlock(&config_lock));
        writer_ns += keep_waiting();
        RELEASE_BY(config, &section, pthread_rwlock_unlock(&config_lock));
        pthread_barrier_wait(&step);

        second_leaves = true;
        while (!second_reads)
            sleep_ns(20000);
        ACQUIRE_BY(config, &section, pthread_rwlock_rdlock(&config_lock));
        writer_ns += keep_waiting();
        second_leaves = true;
        while (second_reads)
            sleep_ns(20000);
        RELEASE_BY(config, &section, pthread_rwlock_unlock(&config_lock));
        pthread_barrier_wait(&step);
    }
    fact("reader_waits_ns", reader_ns);
    fact("writer_waits_ns", writer_ns);
}

static struct timespec soon(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    t.tv_nsec += 2000000;
    t.tv_sec += t.tv_nsec / 1000000000;
    t.tv_nsec %= 1000000000;
    return t;
}

// Asks in vain, while the main thread holds tried_lock.
static void *stranger(void *writes)
{
    struct timespec t;
    if (writes) {
        FAIL_BY(tried, try_failures, EBUSY, pthread_rwlock_tryrdlock(&tried_lock));
        t = soon(CLOCK_REALTIME);
        FAIL_BY(tried, timeouts, ETIMEDOUT, pthread_rwlock_timedrdlock(&tried_lock, &t));
        t = soon(CLOCK_MONOTONIC);
        FAIL_BY(tried, timeouts, ETIMEDOUT, pthread_rwlock_clockrdlock(&tried_lock, CLOCK_MONOTONIC, &t));
    }
    FAIL_BY(tried, try_failures, EBUSY, pthread_rwlock_trywrlock(&tried_lock));
    t = soon(CLOCK_REALTIME);
    FAIL_BY(tried, timeouts, ETIMEDOUT, pthread_rwlock_timedwrlock(&tried_lock, &t));
    t = soon(CLOCK_MONOTONIC);
    FAIL_BY(tried, timeouts, ETIMEDOUT, pthread_rwlock_clockwrlock(&tried_lock, CLOCK_MONOTONIC, &t));
    return NULL;
}

static void ask_in_vain(bool written)
{
    pthread_t thread;
    MUST(pthread_create(&thread, NULL, stranger, written ? &tried_lock : NULL));
    MUST(pthread_join(thread, NULL));
}

NAMED static void in_vain(void)
{
    struct section section;
    struct timespec t = soon(CLOCK_REALTIME);
    ACQUIRE_BY(tried, &section, pthread_rwlock_trywrlock(&tried_lock));
    ask_in_vain(true);
#ifdef __GLIBC__ // musl waits for ever
    FAIL_BY(tried, errors, EDEADLK, pthread_rwlock_wrlock(&tried_lock));
    FAIL_BY(tried, errors, EDEADLK, pthread_rwlock_rdlock(&tried_lock));
#endif
    RELEASE_BY(tried, &section, pthread_rwlock_unlock(&tried_lock));
    ACQUIRE_BY(tried, &section, pthread_rwlock_timedrdlock(&tried_lock, &t));
    ask_in_vain(false);
    RELEASE_BY(tried, &section, pthread_rwlock_unlock(&tried_lock));
    ACQUIRE_BY(tried, &section, pthread_rwlock_tryrdlock(&tried_lock));
    RELEASE_BY(tried, &section, pthread_rwlock_unlock(&tried_lock));
    ACQUIRE_BY(tried, &section, pthread_rwlock_timedwrlock(&tried_lock, &t));
    RELEASE_BY(tried, &section, pthread_rwlock_unlock(&tried_lock));
}

int main(int argc, char **argv)
{
    long threads = number(argc, argv, 1, 4);
    rounds = number(argc, argv, 2, 20);
    table = truth_of("table_lock", &table_lock);
    config = truth_of("config_lock", &config_lock);
    tried = truth_of("tried_lock", &tried_lock);
    MUST(pthread_barrier_init(&step, NULL, 2));
    ready_and_go();
    pthread_t thread[MAX_THREADS];
    if (threads > MAX_THREADS)
        die("THREADS", EINVAL);
    for (long i = 0; i < threads; i++)
        MUST(pthread_create(&thread[i], NULL, worker, NULL));
    for (long i = 0; i < threads; i++)
        MUST(pthread_join(thread[i], NULL));
    // Alone: a writer that came in between would make who reads twice wait for itself.
    for (long i = 0; i < rounds; i++)
        lookup(true);
    pthread_t others[2];
    MUST(pthread_create(&others[0], NULL, partner, NULL));
    MUST(pthread_create(&others[1], NULL, second, NULL));
    contended();
    MUST(pthread_join(others[0], NULL));
    MUST(pthread_join(others[1], NULL));
    in_vain();
    thread_done();
    fact("reads", reads);
    fact("writes", writes);
    return finish("rwlock");
}
