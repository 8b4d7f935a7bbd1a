// handoff THREADS SECONDS [HOLD] [WORK] [KIND]: the threads take `handed_lock` again and again, a mutex with priority inheritance,
// which the kernel gives to the longest waiter at every release while somebody waits; hold it for HOLD steps of a loop, and work for
// WORK outside. With KIND `futex` each waits for its turn on a futex word of its own instead, and wakes the next.
//
// Facts: duration_ns, cpu_ns (of all threads), sections, waits (futex calls that slept).
#include "truth.h"
#include <linux/futex.h>

enum { MAX = 16 };

pthread_mutex_t handed_lock;

static struct lock_truth *truth;
static long threads, hold, rest;
static bool turns;
static _Atomic bool over;
static _Atomic uint64_t sections, waits;
static struct {
    _Alignas(64) _Atomic uint32_t word;
} turn[MAX];

static void steps(long count)
{
    for (volatile long i = 0; i < count; i++)
        ;
}

NAMED static void handed_section(void)
{
    MUST(pthread_mutex_lock(&handed_lock));
    steps(hold);
    MUST(pthread_mutex_unlock(&handed_lock));
    truth->acquisitions++;
}

NAMED static void take_turn(long self)
{
    while (turn[self].word == 0 && !over)
        if (syscall(SYS_futex, &turn[self].word, FUTEX_WAIT_PRIVATE, 0, &(struct timespec){.tv_nsec = 100000000}, NULL, 0) == 0)
            waits++;
    turn[self].word = 0;
    steps(hold);
    long next = (self + 1) % threads;
    turn[next].word = 1;
    syscall(SYS_futex, &turn[next].word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static void *work(void *self)
{
    uint64_t made = 0;
    for (; !over; made++) {
        if (turns)
            take_turn((long)self);
        else
            handed_section();
        steps(rest);
    }
    sections += made;
    thread_done();
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t ids[MAX];
    pthread_mutexattr_t attr;
    struct timespec cpu;
    threads = number(argc, argv, 1, 3);
    uint64_t duration_ns = (uint64_t)number(argc, argv, 2, 3) * 1000000000;
    hold = number(argc, argv, 3, 200);
    rest = number(argc, argv, 4, 200);
    turns = argc > 5 && strcmp(argv[5], "futex") == 0;
    if (threads > MAX)
        die("handoff", EINVAL);
    MUST(pthread_mutexattr_init(&attr));
    MUST(pthread_mutexattr_setprotocol(&attr, PTHREAD_PRIO_INHERIT));
    MUST(pthread_mutex_init(&handed_lock, &attr));
    truth = truth_of("handed_lock", &handed_lock);
    turn[0].word = 1;
    ready_and_go();
    uint64_t begin = now_ns();
    for (long i = 0; i < threads; i++)
        MUST(pthread_create(&ids[i], NULL, work, (void *)i));
    sleep_ns(duration_ns);
    over = true;
    for (long i = 0; i < threads; i++)
        MUST(pthread_join(ids[i], NULL));
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
    fact("duration_ns", now_ns() - begin);
    fact("cpu_ns", (uint64_t)cpu.tv_sec * 1000000000 + (uint64_t)cpu.tv_nsec);
    fact("sections", sections);
    fact("waits", waits);
    return finish("handoff");
}
