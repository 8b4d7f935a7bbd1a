// trylock FAILURES SUCCESSES: while a holder keeps `busy_lock`, exactly FAILURES tries fail; afterwards exactly
// SUCCESSES tries succeed. Nobody ever waits.
#include "truth.h"

pthread_mutex_t busy_lock = PTHREAD_MUTEX_INITIALIZER;

static struct lock_truth *truth;
static pthread_barrier_t held, tried;

NAMED static void keep(void)
{
    struct section section;
    ACQUIRE(truth, &section);
    pthread_barrier_wait(&held);
    pthread_barrier_wait(&tried);
    RELEASE(truth, &section);
}

static void *holder(void *arg)
{
    keep();
    thread_done();
    return arg;
}

NAMED static void try_in_vain(long times)
{
    for (long i = 0; i < times; i++)
        FAIL_BY(truth, try_failures, EBUSY, pthread_mutex_trylock(&busy_lock));
}

NAMED static void try_with_success(long times)
{
    for (long i = 0; i < times; i++) {
        struct section section;
        ACQUIRE_BY(truth, &section, pthread_mutex_trylock(&busy_lock));
        RELEASE(truth, &section);
    }
}

int main(int argc, char **argv)
{
    long failures = number(argc, argv, 1, 1000), successes = number(argc, argv, 2, 500);
    truth = truth_of("busy_lock", &busy_lock);
    MUST(pthread_barrier_init(&held, NULL, 2));
    MUST(pthread_barrier_init(&tried, NULL, 2));
    ready_and_go();
    pthread_t thread;
    MUST(pthread_create(&thread, NULL, holder, NULL));
    pthread_barrier_wait(&held);
    try_in_vain(failures);
    pthread_barrier_wait(&tried);
    MUST(pthread_join(thread, NULL));
    try_with_success(successes);
    thread_done();
    return finish("trylock");
}
