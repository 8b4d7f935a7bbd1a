// failing ROUNDS: mutexes that pthread_mutex_lock refuses to give, ROUNDS times each, before and while next_lock is held.
//   lost_lock       robust; its holder died, and the next one did not make it consistent: ENOTRECOVERABLE
//   inherit_lock    priority inheritance and error-checking: EDEADLK for its holder
//   deep_lock       recursive; locked as often as can be counted: EAGAIN
//   ceiling_lock    priority ceiling below the caller's priority: EINVAL (only where the program may have a real-time priority)
// Facts: ceilings (1 if there is the last one).
#include "truth.h"

#include <limits.h>
#include <sched.h>

pthread_mutex_t lost_lock, inherit_lock, deep_lock, ceiling_lock;
pthread_mutex_t next_lock = PTHREAD_MUTEX_INITIALIZER;

static struct lock_truth *lost, *inherit, *deep, *ceiling, *next;
static long rounds;

static void init(pthread_mutex_t *mutex, int type, int protocol, int robustness)
{
    pthread_mutexattr_t attributes;
    MUST(pthread_mutexattr_init(&attributes));
    MUST(pthread_mutexattr_settype(&attributes, type));
    MUST(pthread_mutexattr_setprotocol(&attributes, protocol));
    MUST(pthread_mutexattr_setrobust(&attributes, robustness));
    if (protocol == PTHREAD_PRIO_PROTECT)
        MUST(pthread_mutexattr_setprioceiling(&attributes, 1));
    MUST(pthread_mutex_init(mutex, &attributes));
}

static void *dies(void *arg)
{
    MUST(pthread_mutex_lock(&lost_lock));
    return arg;
}

// Refused, then next_lock; and refused while that is held: two orders, if one were to believe that the lock was got.
NAMED static void refused(struct lock_truth *truth, int error)
{
    struct section section;
    FAIL_BY(truth, errors, error, pthread_mutex_lock(truth->object));
    ACQUIRE(next, &section);
    FAIL_BY(truth, errors, error, pthread_mutex_lock(truth->object));
    RELEASE(next, &section);
}

static void *ceilings(void *arg)
{
    struct sched_param param = {.sched_priority = 2};
    if (pthread_setschedparam(pthread_self(), SCHED_FIFO, &param) != 0)
        return arg;
    ceiling = truth_of("ceiling_lock", &ceiling_lock);
    for (long i = 0; i < rounds; i++)
        refused(ceiling, EINVAL);
    thread_done();
    return NULL;
}

int main(int argc, char **argv)
{
    rounds = number(argc, argv, 1, 20);
    init(&lost_lock, PTHREAD_MUTEX_NORMAL, PTHREAD_PRIO_NONE, PTHREAD_MUTEX_ROBUST);
    init(&inherit_lock, PTHREAD_MUTEX_ERRORCHECK, PTHREAD_PRIO_INHERIT, PTHREAD_MUTEX_STALLED);
    init(&deep_lock, PTHREAD_MUTEX_RECURSIVE, PTHREAD_PRIO_NONE, PTHREAD_MUTEX_STALLED);
    init(&ceiling_lock, PTHREAD_MUTEX_NORMAL, PTHREAD_PRIO_PROTECT, PTHREAD_MUTEX_STALLED);
    lost = truth_of("lost_lock", &lost_lock);
    inherit = truth_of("inherit_lock", &inherit_lock);
    deep = truth_of("deep_lock", &deep_lock);
    next = truth_of("next_lock", &next_lock);
    pthread_t thread;
    MUST(pthread_create(&thread, NULL, dies, NULL));
    MUST(pthread_join(thread, NULL));
    ready_and_go();

    struct section section;
    section.called = now_ns();
    MUST_BE(EOWNERDEAD, pthread_mutex_lock(&lost_lock));
    acquired(lost, &section);
    RELEASE(lost, &section);
    for (long i = 0; i < rounds; i++)
        refused(lost, ENOTRECOVERABLE);
    for (long i = 0; i < rounds; i++) {
        ACQUIRE(inherit, &section);
        FAIL_BY(inherit, errors, EDEADLK, pthread_mutex_lock(&inherit_lock));
        RELEASE(inherit, &section);
    }
    ACQUIRE(deep, &section);
    deep_lock.__data.__count = UINT_MAX;
    for (long i = 0; i < rounds; i++)
        FAIL_BY(deep, errors, EAGAIN, pthread_mutex_lock(&deep_lock));
    deep_lock.__data.__count = 1;
    RELEASE(deep, &section);
    void *result;
    MUST(pthread_create(&thread, NULL, ceilings, &rounds));
    MUST(pthread_join(thread, &result));
    fact("ceilings", result == NULL);
    thread_done();
    return finish("failing");
}
