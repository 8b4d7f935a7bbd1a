// stuck hang WAITERS: after "go" a holder takes `hung_lock` and sleeps for ever, and WAITERS threads wait for it.
// stuck deadlock: two threads hold `lock_a` and `lock_b` and each waits for the other's.
// stuck robust: the same with robust mutexes, whose owners stand in their lock words.
// stuck timed: the same with deadlines an hour ahead, which is no deadlock.
// stuck self: one thread waits for `lock_a`, which it holds.
// The truth is printed when everybody sleeps; nothing moves any more until stdin is closed.
#include "truth.h"

#define MAX_WAITERS 16

pthread_mutex_t hung_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t lock_a = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t lock_b = PTHREAD_MUTEX_INITIALIZER;

static pthread_barrier_t held;
static _Atomic pid_t tid[MAX_WAITERS];
static _Atomic pid_t holder_tid;
static bool timed;

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

static struct timespec in_an_hour(void)
{
    struct timespec deadline;
    clock_gettime(CLOCK_REALTIME, &deadline);
    deadline.tv_sec += 3600;
    return deadline;
}

// A macro, so that the call site is in the function that uses it.
#define TAKE(mutex)                                          \
    do {                                                     \
        struct timespec deadline = in_an_hour();             \
        if (timed)                                           \
            MUST(pthread_mutex_timedlock(mutex, &deadline)); \
        else                                                 \
            MUST(pthread_mutex_lock(mutex));                 \
    } while (0)

NAMED static void *a_then_b(void *arg)
{
    tid[0] = my_tid();
    MUST(pthread_mutex_lock(&lock_a));
    pthread_barrier_wait(&held);
    TAKE(&lock_b);
    return arg;
}

NAMED static void *b_then_a(void *arg)
{
    tid[1] = my_tid();
    MUST(pthread_mutex_lock(&lock_b));
    pthread_barrier_wait(&held);
    TAKE(&lock_a);
    return arg;
}

NAMED static void *a_twice(void *arg)
{
    tid[0] = my_tid();
    MUST(pthread_mutex_lock(&lock_a));
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

static void deadlock_alone(void)
{
    pthread_t thread;
    truth_of("lock_a", &lock_a);
    MUST(pthread_create(&thread, NULL, a_twice, NULL));
    await_blocked(&tid[0], &lock_a, sizeof lock_a);
}

static void make_robust(pthread_mutex_t *mutex)
{
    pthread_mutexattr_t robust;
    MUST(pthread_mutexattr_init(&robust));
    MUST(pthread_mutexattr_setrobust(&robust, PTHREAD_MUTEX_ROBUST));
    MUST(pthread_mutex_init(mutex, &robust));
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "";
    long waiters = number(argc, argv, 2, 3);
    if (waiters < 1 || waiters > MAX_WAITERS)
        die("stuck", EINVAL);
    MUST(pthread_barrier_init(&held, NULL, 2));
    ready_and_go();
    timed = strcmp(how, "timed") == 0;
    if (strcmp(how, "robust") == 0) {
        make_robust(&lock_a);
        make_robust(&lock_b);
    }
    if (strcmp(how, "hang") == 0)
        hang(waiters);
    else if (strcmp(how, "self") == 0)
        deadlock_alone();
    else
        deadlock();
    fact("all_wait_at_ns", now_ns());
    print_truth("stuck");
    char byte;
    while (read(STDIN_FILENO, &byte, 1) > 0)
        ;
    _exit(0);
}
