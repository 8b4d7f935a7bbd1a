// mutex_types ROUNDS: one mutex of every type that glibc has, each locked ROUNDS times.
//   recursive_lock   locked three deep: one critical section a round, the inner calls are no acquisitions of their own
//   errorcheck_lock  locked again by its holder: refused (EDEADLK), once a round; unlocked by a stranger: refused (EPERM)
//   adaptive_lock, inherit_lock (priority inheritance), shared_lock (process-shared): plainly locked
//   robust_lock      its first holder exits holding it; the next one gets it all the same (EOWNERDEAD)
//   inherit_lock is waited for exactly once.
#include "truth.h"

pthread_mutex_t recursive_lock, errorcheck_lock, adaptive_lock, inherit_lock, shared_lock, robust_lock;

static struct lock_truth *recursive, *errorcheck, *adaptive, *inherit, *shared, *robust;
static _Atomic pid_t waiter_tid;
static pthread_barrier_t held;

static void init(pthread_mutex_t *mutex, int type, int protocol, int pshared, int robustness)
{
    pthread_mutexattr_t attributes;
    MUST(pthread_mutexattr_init(&attributes));
    MUST(pthread_mutexattr_settype(&attributes, type));
    MUST(pthread_mutexattr_setprotocol(&attributes, protocol));
    MUST(pthread_mutexattr_setpshared(&attributes, pshared));
    MUST(pthread_mutexattr_setrobust(&attributes, robustness));
    MUST(pthread_mutex_init(mutex, &attributes));
}

NAMED static void three_deep(void)
{
    struct section section;
    ACQUIRE(recursive, &section);
    MUST(pthread_mutex_lock(&recursive_lock));
    MUST(pthread_mutex_trylock(&recursive_lock));
    MUST(pthread_mutex_unlock(&recursive_lock));
    MUST(pthread_mutex_unlock(&recursive_lock));
    RELEASE(recursive, &section);
}

NAMED static void lock_twice(void)
{
    struct section section;
    ACQUIRE(errorcheck, &section);
    FAIL_BY(errorcheck, errors, EDEADLK, pthread_mutex_lock(&errorcheck_lock));
    RELEASE(errorcheck, &section);
}

NAMED static void plainly(struct lock_truth *truth)
{
    struct section section;
    ACQUIRE(truth, &section);
    RELEASE(truth, &section);
}

static void *stranger(void *arg)
{
    MUST_BE(EPERM, pthread_mutex_unlock(&errorcheck_lock));
    return arg;
}

static void *inherit_waiter(void *arg)
{
    waiter_tid = my_tid();
    pthread_barrier_wait(&held);
    plainly(inherit);
    inherit->contended++;
    thread_done();
    return arg;
}

static void *dying_holder(void *arg)
{
    struct section section;
    ACQUIRE(robust, &section);
    thread_done();
    return arg;
}

static void inherit_contended(void)
{
    pthread_t thread;
    struct section section;
    MUST(pthread_create(&thread, NULL, inherit_waiter, NULL));
    ACQUIRE(inherit, &section);
    pthread_barrier_wait(&held);
    await_blocked(&waiter_tid, &inherit_lock, sizeof inherit_lock);
    uint64_t waits = now_ns();
    sleep_ns(2000000);
    inherit->wait_min_ns = now_ns() - waits;
    RELEASE(inherit, &section);
    MUST(pthread_join(thread, NULL));
}

static void robust_owner_dies(void)
{
    pthread_t thread;
    struct section section;
    uint64_t began = now_ns();
    MUST(pthread_create(&thread, NULL, dying_holder, NULL));
    MUST(pthread_join(thread, NULL));
    // It held the lock until it was gone, which it could not see itself.
    section.called = now_ns();
    robust->span_ns += section.called - began;
    MUST_BE(EOWNERDEAD, pthread_mutex_lock(&robust_lock));
    acquired(robust, &section);
    MUST(pthread_mutex_consistent(&robust_lock));
    RELEASE(robust, &section);
}

int main(int argc, char **argv)
{
    long rounds = number(argc, argv, 1, 100);
    init(&recursive_lock, PTHREAD_MUTEX_RECURSIVE, PTHREAD_PRIO_NONE, 0, 0);
    init(&errorcheck_lock, PTHREAD_MUTEX_ERRORCHECK, PTHREAD_PRIO_NONE, 0, 0);
    init(&adaptive_lock, PTHREAD_MUTEX_ADAPTIVE_NP, PTHREAD_PRIO_NONE, 0, 0);
    init(&inherit_lock, PTHREAD_MUTEX_NORMAL, PTHREAD_PRIO_INHERIT, 0, 0);
    init(&shared_lock, PTHREAD_MUTEX_NORMAL, PTHREAD_PRIO_NONE, PTHREAD_PROCESS_SHARED, 0);
    init(&robust_lock, PTHREAD_MUTEX_NORMAL, PTHREAD_PRIO_NONE, 0, PTHREAD_MUTEX_ROBUST);
    MUST(pthread_barrier_init(&held, NULL, 2));
    recursive = truth_of("recursive_lock", &recursive_lock);
    errorcheck = truth_of("errorcheck_lock", &errorcheck_lock);
    adaptive = truth_of("adaptive_lock", &adaptive_lock);
    inherit = truth_of("inherit_lock", &inherit_lock);
    shared = truth_of("shared_lock", &shared_lock);
    robust = truth_of("robust_lock", &robust_lock);
    ready_and_go();
    for (long i = 0; i < rounds; i++) {
        three_deep();
        lock_twice();
        plainly(adaptive);
        plainly(inherit);
        plainly(shared);
        plainly(robust);
    }
    struct section section;
    pthread_t thread;
    ACQUIRE(errorcheck, &section);
    MUST(pthread_create(&thread, NULL, stranger, NULL));
    MUST(pthread_join(thread, NULL));
    RELEASE(errorcheck, &section);
    inherit_contended();
    robust_owner_dies();
    thread_done();
    return finish("mutex_types");
}
