// kinds THREADS ROUNDS: spin locks, semaphores, pthread_once and C11's locks.
//   spin_lock    every thread takes it ROUNDS times by lock and as often by trylock, until it gets it; then one waits for it
//                ROUNDS times by design
//   pool         a semaphore with two permits, taken and given back ROUNDS times by every thread; one that is used like a mutex
//   queue        a semaphore that one thread posts and another waits for, ROUNDS times, always in vain at first
//   gate         tries and deadlines in vain
//   once         an initialiser that every thread wants, and waits for while it runs
//   c11_lock     C11's mtx_t, taken in c11_section, with cnd_wait
// Facts: spin_waits_ns (waited for at least), once_ns (how long the initialiser was waited for by all).
#include "truth.h"
#include <semaphore.h>
#include <threads.h>

#define HOLD_NS 1000000

pthread_spinlock_t spin_lock;
sem_t pool, queue, gate;
pthread_once_t once = PTHREAD_ONCE_INIT;
mtx_t c11_lock;
static cnd_t c11_condition;
static once_flag c11_once = ONCE_FLAG_INIT;

static struct lock_truth *spin, *pooled, *queued, *gated, *onced, *c11;
static long rounds, threads;
static _Atomic pid_t waiter_tid, worker_tid[MAX_THREADS];
static pthread_barrier_t together, step;
static _Atomic uint64_t once_ran_ns;
static bool served;

static int sem_error(int result)
{
    return result ? errno : 0;
}

NAMED static void spin_section(bool by_try)
{
    struct section section;
    if (by_try) {
        for (;;) {
            uint64_t called = now_ns();
            section.called = called;
            int error = pthread_spin_trylock(&spin_lock);
            if (!error)
                break;
            MUST_BE(EBUSY, error);
            failed(spin, called);
            spin->try_failures++;
        }
        acquired(spin, &section);
    } else {
        ACQUIRE_BY(spin, &section, pthread_spin_lock(&spin_lock));
    }
    RELEASE_BY(spin, &section, pthread_spin_unlock(&spin_lock));
}

NAMED static void pool_section(void)
{
    struct section section;
    ACQUIRE_BY(pooled, &section, sem_error(sem_wait(&pool)));
    RELEASE_BY(pooled, &section, sem_error(sem_post(&pool)));
}

NAMED static void c11_section(void)
{
    struct section section;
    ACQUIRE_BY(c11, &section, mtx_lock(&c11_lock) != thrd_success);
    RELEASE_BY(c11, &section, mtx_unlock(&c11_lock) != thrd_success);
}

static void initialise(void)
{
    for (long i = 0; i < threads; i++)
        if (worker_tid[i] != my_tid())
            await_blocked(&worker_tid[i], &once, sizeof once);
    uint64_t from = now_ns();
    sleep_ns(20 * HOLD_NS);
    once_ran_ns = now_ns() - from;
}

static void initialise_c11(void)
{
}

static void *worker(void *arg)
{
    *(_Atomic pid_t *)arg = my_tid();
    pthread_barrier_wait(&together);
    pthread_once(&once, initialise);
    call_once(&c11_once, initialise_c11);
    for (long i = 0; i < rounds; i++) {
        spin_section(false);
        spin_section(true);
        pool_section();
        c11_section();
    }
    thread_done();
    return NULL;
}

NAMED static void consume(void)
{
    struct section section;
    ACQUIRE_BY(queued, &section, sem_error(sem_wait(&queue)));
    queued->contended++;
}

static void *consumer(void *arg)
{
    waiter_tid = my_tid();
    for (long i = 0; i < rounds; i++)
        consume();
    struct section section;
    // The condition is signalled once.
    ACQUIRE_BY(c11, &section, mtx_lock(&c11_lock) != thrd_success);
    pthread_barrier_wait(&step);
    while (!served)
        COND_WAIT_BY(c11, &section, thrd_success, cnd_wait(&c11_condition, &c11_lock));
    RELEASE_BY(c11, &section, mtx_unlock(&c11_lock) != thrd_success);
    thread_done();
    return arg;
}

static void *spinner(void *arg)
{
    for (long i = 0; i < rounds; i++) {
        pthread_barrier_wait(&step);
        spin_section(false);
        pthread_barrier_wait(&step);
    }
    thread_done();
    return arg;
}

NAMED static void in_vain(void)
{
    struct timespec t;
    MUST_BE(EAGAIN, sem_error(sem_trywait(&gate)));
    gated->try_failures++;
    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_nsec = (t.tv_nsec + 2000000) % 1000000000;
    uint64_t called = now_ns();
    MUST_BE(ETIMEDOUT, sem_error(sem_timedwait(&gate, &t)));
    failed(gated, called);
    gated->timeouts++;
    MUST(sem_error(sem_post(&gate)));
    struct section section;
    ACQUIRE_BY(gated, &section, sem_error(sem_trywait(&gate)));
    RELEASE_BY(gated, &section, sem_error(sem_post(&gate)));
    t.tv_sec += 10;
    ACQUIRE_BY(gated, &section, sem_error(sem_timedwait(&gate, &t)));
    RELEASE_BY(gated, &section, sem_error(sem_post(&gate)));
}

int main(int argc, char **argv)
{
    threads = number(argc, argv, 1, 4);
    rounds = number(argc, argv, 2, 50);
    MUST(pthread_spin_init(&spin_lock, PTHREAD_PROCESS_PRIVATE));
    MUST(sem_error(sem_init(&pool, 0, 2) || sem_init(&queue, 0, 0) || sem_init(&gate, 0, 0)));
    MUST(mtx_init(&c11_lock, mtx_plain) != thrd_success || cnd_init(&c11_condition) != thrd_success);
    spin = truth_of("spin_lock", (void *)&spin_lock);
    pooled = truth_of("pool", &pool);
    queued = truth_of("queue", &queue);
    gated = truth_of("gate", &gate);
    onced = truth_of("once", &once);
    c11 = truth_of("c11_lock", &c11_lock);
    ready_and_go();
    pthread_t thread[MAX_THREADS];
    if (threads > MAX_THREADS)
        die("THREADS", EINVAL);
    MUST(pthread_barrier_init(&together, NULL, (unsigned)threads));
    for (long i = 0; i < threads; i++)
        MUST(pthread_create(&thread[i], NULL, worker, &worker_tid[i]));
    for (long i = 0; i < threads; i++)
        MUST(pthread_join(thread[i], NULL));
    onced->acquisitions = (uint64_t)threads;
    onced->contended = (uint64_t)threads - 1;

    MUST(pthread_barrier_init(&step, NULL, 2));
    MUST(pthread_create(&thread[0], NULL, spinner, NULL));
    uint64_t spin_ns = 0;
    for (long i = 0; i < rounds; i++) {
        struct section section;
        ACQUIRE_BY(spin, &section, pthread_spin_lock(&spin_lock));
        pthread_barrier_wait(&step);
        sleep_ns(2 * HOLD_NS);
        spin_ns += HOLD_NS;
        RELEASE_BY(spin, &section, pthread_spin_unlock(&spin_lock));
        pthread_barrier_wait(&step);
    }
    MUST(pthread_join(thread[0], NULL));

    MUST(pthread_create(&thread[0], NULL, consumer, NULL));
    for (long i = 0; i < rounds; i++) {
        await_blocked(&waiter_tid, &queue, sizeof queue);
        uint64_t from = now_ns();
        sleep_ns(HOLD_NS);
        queued->wait_min_ns += now_ns() - from;
        MUST(sem_error(sem_post(&queue)));
        while (queued->contended <= (uint64_t)i)
            sleep_ns(20000);
    }
    pthread_barrier_wait(&step);
    struct section section;
    ACQUIRE_BY(c11, &section, mtx_lock(&c11_lock) != thrd_success);
    served = true;
    MUST(cnd_signal(&c11_condition) != thrd_success);
    RELEASE_BY(c11, &section, mtx_unlock(&c11_lock) != thrd_success);
    MUST(pthread_join(thread[0], NULL));
    in_vain();
    thread_done();
    fact("spin_waits_ns", spin_ns);
    fact("once_ns", once_ran_ns);
    return finish("kinds");
}
