// Programs of which untrue things could be told.
//
// blame parked ROUNDS MS   a thread parks on `own_lock`, which it holds itself, ROUNDS times; main lets it go on after MS each time
// blame relay THREADS      threads take turns at `relay_lock`, 2 ms each, until there is one more byte on stdin
// blame forged ROUNDS N    two threads take turns at `forged_lock`, whose owner word says N while it is held
// blame hidden N           two threads wait for `forged_lock`, whose owner word says N, until there is one more byte on stdin
// blame idle               two threads wait for `idle_condition` until then
// blame beside ROUNDS      three threads take turns at a lock of their own making, beside which the number of a living thread stands
// blame ender ROUNDS       main starts a thread that goes on for ever, and one that does ROUNDS sections of 300 µs and waits at
//                          `hot_lock` for the other's of 1 ms; it waits for that one's end, and calls exit
#include "truth.h"
#include <linux/futex.h>

#define MAX 16

pthread_mutex_t own_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t relay_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t forged_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t hot_lock = PTHREAD_MUTEX_INITIALIZER;

pthread_mutex_t idle_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t idle_condition = PTHREAD_COND_INITIALIZER;

static _Atomic pid_t parked_tid;
static _Atomic bool stop;
static _Atomic uint64_t longest;
static long rounds, forged;

// As a runtime lays out a vector behind its lock.
static struct {
    _Atomic uint32_t word;
    uint32_t poisoned;
    uint64_t capacity, pointer, length;
} beside;

static void take(pthread_mutex_t *lock)
{
    uint64_t called = now_ns();
    MUST(pthread_mutex_lock(lock));
    uint64_t took = now_ns() - called, most = longest;
    while (took > most && !atomic_compare_exchange_weak(&longest, &most, took))
        ;
}

NAMED static void *park(void *arg)
{
    MUST(pthread_mutex_lock(&own_lock));
    parked_tid = my_tid();
    for (long i = 0; i < rounds; i++)
        MUST(pthread_mutex_lock(&own_lock));
    return arg;
}

static void parked(long ms)
{
    pthread_t thread;
    MUST(pthread_create(&thread, NULL, park, NULL));
    for (long i = 0; i < rounds; i++) {
        await_blocked(&parked_tid, &own_lock, sizeof own_lock);
        sleep_ns((uint64_t)ms * 1000000);
        MUST(pthread_mutex_unlock(&own_lock));
    }
    MUST(pthread_join(thread, NULL));
}

NAMED static void *run_relay(void *arg)
{
    while (!stop) {
        take(&relay_lock);
        sleep_ns(2000000);
        MUST(pthread_mutex_unlock(&relay_lock));
        sleep_ns(100000);
    }
    return arg;
}

NAMED static void *run_forged(void *arg)
{
    for (long i = 0; i < rounds; i++) {
        take(&forged_lock);
#ifdef __GLIBC__
        forged_lock.__data.__owner = (int)forged;
#endif
        sleep_ns(1000000);
        MUST(pthread_mutex_unlock(&forged_lock));
        sleep_ns(100000);
    }
    return arg;
}

NAMED static void *wait_hidden(void *arg)
{
    take(&forged_lock);
    MUST(pthread_mutex_unlock(&forged_lock));
    return arg;
}

NAMED static void *wait_idle(void *arg)
{
    MUST(pthread_mutex_lock(&idle_lock));
    while (!stop)
        MUST(pthread_cond_wait(&idle_condition, &idle_lock));
    MUST(pthread_mutex_unlock(&idle_lock));
    return arg;
}

static void futex(int op, uint32_t value)
{
    syscall(SYS_futex, &beside.word, op | FUTEX_PRIVATE_FLAG, value, NULL, NULL, 0);
}

NAMED static void *run_beside(void *arg)
{
    for (long i = 0; i < rounds; i++) {
        uint32_t is = 0;
        if (!atomic_compare_exchange_strong(&beside.word, &is, 1))
            while (atomic_exchange(&beside.word, 2) != 0)
                futex(FUTEX_WAIT, 2);
        beside.length++;
        sleep_ns(1000000);
        if (atomic_exchange(&beside.word, 0) == 2)
            futex(FUTEX_WAKE, 1);
        sleep_ns(100000);
    }
    return arg;
}

NAMED static void *for_ever(void *arg)
{
    for (;;) {
        take(&hot_lock);
        sleep_ns(1000000);
        MUST(pthread_mutex_unlock(&hot_lock));
        sleep_ns(50000);
    }
    return arg;
}

NAMED static void *some_rounds(void *arg)
{
    for (long i = 0; i < rounds; i++) {
        take(&hot_lock);
        sleep_ns(300000);
        MUST(pthread_mutex_unlock(&hot_lock));
        // Time for the other to get it.
        sleep_ns(200000);
    }
    return arg;
}

static void by(long threads, void *(*run)(void *))
{
    pthread_t thread[MAX];
    for (long i = 0; i < threads; i++)
        MUST(pthread_create(&thread[i], NULL, run, NULL));
    if (run == run_relay || run == wait_hidden || run == wait_idle) {
        char byte;
        MUST(read(STDIN_FILENO, &byte, 1) == 1 ? 0 : EIO);
        stop = true;
    }
    if (run == wait_hidden)
        MUST(pthread_mutex_unlock(&forged_lock));
    if (run == wait_idle)
        MUST(pthread_cond_broadcast(&idle_condition));
    for (long i = 0; i < threads; i++)
        MUST(pthread_join(thread[i], NULL));
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "";
    rounds = number(argc, argv, 2, 10);
    long second = number(argc, argv, 3, 1000);
    ready_and_go();
    fact("main_tid", (uint64_t)my_tid());
    uint64_t begin = now_ns();
    if (strcmp(how, "parked") == 0) {
        parked(second);
    } else if (strcmp(how, "relay") == 0) {
        if (rounds > MAX)
            die("blame", EINVAL);
        by(rounds, run_relay);
    } else if (strcmp(how, "forged") == 0) {
        forged = second;
        by(2, run_forged);
    } else if (strcmp(how, "hidden") == 0) {
        MUST(pthread_mutex_lock(&forged_lock));
#ifdef __GLIBC__
        forged_lock.__data.__owner = (int)rounds;
#endif
        by(2, wait_hidden);
    } else if (strcmp(how, "idle") == 0) {
        by(2, wait_idle);
    } else if (strcmp(how, "beside") == 0) {
        beside.capacity = (uint64_t)my_tid();
        by(3, run_beside);
    } else if (strcmp(how, "ender") == 0) {
        pthread_t endless, worker;
        MUST(pthread_create(&endless, NULL, for_ever, NULL));
        sleep_ns(500000);
        MUST(pthread_create(&worker, NULL, some_rounds, NULL));
        MUST(pthread_join(worker, NULL));
    } else {
        die(how, EINVAL);
    }
    fact("took_ns", now_ns() - begin);
    fact("longest_ns", longest);
    return finish("blame");
}
