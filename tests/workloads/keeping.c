// keeping HOLD_MS: after "go" two threads take `mutex_lock` and `rw_lock` (for writing) for HOLD_MS each, counted from when another thread waits
// for the lock. Those two keep them when they have them: the line "kept" is printed then, and they go on at the next byte on stdin. Facts:
// how long each has waited, ns, by its own clock.
#include "truth.h"

pthread_mutex_t mutex_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_rwlock_t rw_lock = PTHREAD_RWLOCK_INITIALIZER;

static long hold_ms;
static pthread_barrier_t held, over;
static _Atomic int kept;
static _Atomic bool mutex_over;
static _Atomic pid_t mutex_tid, rw_tid;
static uint64_t mutex_waited_ns, rw_waited_ns;

NAMED static void *slow_mutex_holder(void *arg)
{
    MUST(pthread_mutex_lock(&mutex_lock));
    pthread_barrier_wait(&held);
    await_blocked(&mutex_tid, &mutex_lock, sizeof mutex_lock);
    sleep_ns(hold_ms * 1000000ull);
    MUST(pthread_mutex_unlock(&mutex_lock));
    return arg;
}

NAMED static void *slow_writer(void *arg)
{
    MUST(pthread_rwlock_wrlock(&rw_lock));
    pthread_barrier_wait(&held);
    await_blocked(&rw_tid, &rw_lock, sizeof rw_lock);
    sleep_ns(hold_ms * 1000000ull);
    MUST(pthread_rwlock_unlock(&rw_lock));
    return arg;
}

NAMED static void *mutex_keeper(void *arg)
{
    mutex_tid = my_tid();
    uint64_t before = now_ns();
    MUST(pthread_mutex_lock(&mutex_lock));
    mutex_waited_ns = now_ns() - before;
    kept++;
    // It does nothing else with locks, so nothing but the end of its sleep tells that it has this one.
    while (!mutex_over)
        sleep_ns(1000000);
    MUST(pthread_mutex_unlock(&mutex_lock));
    return arg;
}

NAMED static void *rw_keeper(void *arg)
{
    rw_tid = my_tid();
    uint64_t before = now_ns();
    MUST(pthread_rwlock_wrlock(&rw_lock));
    rw_waited_ns = now_ns() - before;
    kept++;
    pthread_barrier_wait(&over);
    MUST(pthread_rwlock_unlock(&rw_lock));
    return arg;
}

int main(int argc, char **argv)
{
    hold_ms = number(argc, argv, 1, 800);
    truth_of("mutex_lock", &mutex_lock);
    truth_of("rw_lock", &rw_lock);
    MUST(pthread_barrier_init(&held, NULL, 3));
    MUST(pthread_barrier_init(&over, NULL, 2));
    ready_and_go();
    pthread_t holders[2], keepers[2];
    MUST(pthread_create(&holders[0], NULL, slow_mutex_holder, NULL));
    MUST(pthread_create(&holders[1], NULL, slow_writer, NULL));
    pthread_barrier_wait(&held);
    MUST(pthread_create(&keepers[0], NULL, mutex_keeper, NULL));
    MUST(pthread_create(&keepers[1], NULL, rw_keeper, NULL));
    while (kept < 2)
        sleep_ns(1000000);
    puts("kept");
    fflush(stdout);
    char byte;
    if (read(STDIN_FILENO, &byte, 1) != 1)
        die("stdin", errno);
    mutex_over = true;
    pthread_barrier_wait(&over);
    for (int i = 0; i < 2; i++) {
        MUST(pthread_join(holders[i], NULL));
        MUST(pthread_join(keepers[i], NULL));
    }
    fact("mutex_waited_ns", mutex_waited_ns);
    fact("rw_waited_ns", rw_waited_ns);
    return finish("keeping");
}
