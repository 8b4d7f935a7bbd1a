// stuck hang WAITERS: after "go" a holder takes `hung_lock` and sleeps for ever, and WAITERS threads wait for it.
// stuck deadlock: two threads hold `lock_a` and `lock_b` and each waits for the other's.
// The truth is printed when everybody sleeps; nothing moves any more until stdin is closed.
#include "truth.h"

#define MAX_WAITERS 16

pthread_mutex_t hung_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t lock_a = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t lock_b = PTHREAD_MUTEX_INITIALIZER;

static pthread_barrier_t held;
static _Atomic pid_t tid[MAX_WAITERS];
static _Atomic pid_t holder_tid;

NAMED static void *sleepy_holder(void *arg)
{
    MUST(pthread_mutex_lock(&hung_lock));
    holder_tid = my_tid();
    pthread_barrier_wait(&held);
    for (;;)
        pause();
    return arg;
}

NAMED static void *hopeless_waiter(void *arg)
{
    tid[(long)arg] = my_tid();
    MUST(pthread_mutex_lock(&hung_lock));
    return NULL;
}

NAMED static void *a_then_b(void *arg)
{
    tid[0] = my_tid();
    MUST(pthread_mutex_lock(&lock_a));
    pthread_barrier_wait(&held);
    MUST(pthread_mutex_lock(&lock_b));
    return arg;
}

NAMED static void *b_then_a(void *arg)
{
    tid[1] = my_tid();
    MUST(pthread_mutex_lock(&lock_b));
    pthread_barrier_wait(&held);
    MUST(pthread_mutex_lock(&lock_a));
    return arg;
}

static void hang(long waiters)
{
    pthread_t thread;
    truth_of("hung_lock", &hung_lock);
    MUST(pthread_create(&thread, NULL, sleepy_holder, NULL));
    pthread_barrier_wait(&held);
    for (long i = 0; i < waiters; i++)
        MUST(pthread_create(&thread, NULL, hopeless_waiter, (void *)i));
    for (long i = 0; i < waiters; i++)
        await_blocked(&tid[i], &hung_lock, sizeof hung_lock);
    fact("holder_tid", (uint64_t)holder_tid);
}

static void deadlock(void)
{
    pthread_t thread;
    truth_of("lock_a", &lock_a);
    truth_of("lock_b", &lock_b);
    MUST(pthread_create(&thread, NULL, a_then_b, NULL));
    MUST(pthread_create(&thread, NULL, b_then_a, NULL));
    await_blocked(&tid[0], &lock_b, sizeof lock_b);
    await_blocked(&tid[1], &lock_a, sizeof lock_a);
}

int main(int argc, char **argv)
{
    bool deadly = argc > 1 && strcmp(argv[1], "deadlock") == 0;
    long waiters = number(argc, argv, 2, 3);
    if (waiters < 1 || waiters > MAX_WAITERS)
        die("stuck", EINVAL);
    MUST(pthread_barrier_init(&held, NULL, 2));
    ready_and_go();
    if (deadly)
        deadlock();
    else
        hang(waiters);
    fact("all_wait_at_ns", now_ns());
    print_truth("stuck");
    char byte;
    while (read(STDIN_FILENO, &byte, 1) > 0)
        ;
    _exit(0);
}
