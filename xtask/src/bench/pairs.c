// Locks and unlocks a mutex that nobody else wants while a second thread sleeps, so that glibc does not skip its
// atomics. A command a line on stdin: "pairs MS" or "calls MS" (a cheap system call instead). The answer is a line
// with how many were made, how long that took in ns, and the thread's CPU time for it in ns.
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { BATCH = 100 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *sleep_on(void *arg)
{
    for (;;)
        pause();
    return arg;
}

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void pairs(void)
{
    for (int i = 0; i < BATCH; i++) {
        pthread_mutex_lock(&lock);
        pthread_mutex_unlock(&lock);
    }
}

static void calls(void)
{
    for (int i = 0; i < BATCH; i++)
        syscall(SYS_getppid);
}

int main(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, sleep_on, NULL) != 0) {
        fputs("failed to start a thread\n", stderr);
        return 1;
    }
    char what[16];
    uint64_t milliseconds;
    while (scanf("%15s %" SCNu64, what, &milliseconds) == 2) {
        void (*work)(void) = strcmp(what, "calls") == 0 ? calls : pairs;
        uint64_t made = 0, cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID), begin = clock_ns(CLOCK_MONOTONIC), now;
        do {
            work();
            made += BATCH;
            now = clock_ns(CLOCK_MONOTONIC);
        } while (now - begin < milliseconds * 1000000);
        cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID) - cpu;
        printf("%" PRIu64 " %" PRIu64 " %" PRIu64 "\n", made, now - begin, cpu);
        fflush(stdout);
    }
    return 0;
}
