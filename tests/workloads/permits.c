// permits ROUNDS [HURRIED]: a semaphore of one permit, `permit_lock`, is a lock that `long_task` holds for 5 ms and `short_task` for
// none; the permits of `jobs` stand for work that `hand_out` posts every 2 ms and `work_off` waits for: no lock. HURRIED threads (0) do
// nothing but short tasks meanwhile.
#include "truth.h"

#include <semaphore.h>

sem_t permit_lock, jobs;

#define MOST_HURRIED 8

static long rounds;
static int over;

NAMED static void long_task(void)
{
    MUST(sem_wait(&permit_lock));
    sleep_ns(5000000);
    MUST(sem_post(&permit_lock));
    // Else it would take the permit again before whoever waits for it gets to run.
    sleep_ns(1000000);
}

NAMED static void short_task(void)
{
    MUST(sem_wait(&permit_lock));
    MUST(sem_post(&permit_lock));
}

NAMED static void work_off(void)
{
    MUST(sem_wait(&jobs));
}

NAMED static void hand_out(void)
{
    sleep_ns(2000000);
    MUST(sem_post(&jobs));
}

static void *first(void *arg)
{
    for (long i = 0; i < rounds; i++)
        long_task();
    thread_done();
    return arg;
}

static void *second(void *arg)
{
    for (long i = 0; i < rounds; i++) {
        short_task();
        long_task();
    }
    thread_done();
    return arg;
}

static void *worker(void *arg)
{
    for (long i = 0; i < rounds; i++)
        work_off();
    thread_done();
    return arg;
}

static void *hurried(void *arg)
{
    while (!__atomic_load_n(&over, __ATOMIC_ACQUIRE))
        short_task();
    thread_done();
    return arg;
}

int main(int argc, char **argv)
{
    rounds = number(argc, argv, 1, 20);
    long others = number(argc, argv, 2, 0);
    if (others > MOST_HURRIED)
        others = MOST_HURRIED;
    MUST(sem_init(&permit_lock, 0, 1));
    MUST(sem_init(&jobs, 0, 0));
    ready_and_go();
    pthread_t threads[3], in_a_hurry[MOST_HURRIED];
    for (long i = 0; i < others; i++)
        MUST(pthread_create(&in_a_hurry[i], NULL, hurried, NULL));
    MUST(pthread_create(&threads[0], NULL, first, NULL));
    MUST(pthread_create(&threads[1], NULL, second, NULL));
    MUST(pthread_create(&threads[2], NULL, worker, NULL));
    for (long i = 0; i < rounds; i++)
        hand_out();
    for (int i = 0; i < 3; i++)
        MUST(pthread_join(threads[i], NULL));
    __atomic_store_n(&over, 1, __ATOMIC_RELEASE);
    for (long i = 0; i < others; i++)
        MUST(pthread_join(in_a_hurry[i], NULL));
    thread_done();
    return finish("permits");
}
