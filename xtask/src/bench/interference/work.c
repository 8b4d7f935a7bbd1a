// A program that takes locks at the rate of PARSEC's bodytrack: 4,800 times for each second of a thread's CPU time.
//
//   work THREADS
//
// Prints "ready". Each line on stdin is a number of sections that all threads together are to do; they are answered by their wall time
// and CPU time in ns, and, where the machine has hardware counters, by cache references and cache misses, else by "- -". A section takes
// one of 16 locks, about 1 us of work inside and the rest outside. Threads rest in a futex call of their own: it needs no lock.
#include <errno.h>
#include <inttypes.h>
#include <linux/futex.h>
#include <linux/perf_event.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { LOCKS = 16, PER_SECOND = 4800, INSIDE_NS = 1000 };

static struct {
    _Alignas(64) pthread_mutex_t lock;
} locks[LOCKS];
static long threads;
static uint64_t inside, outside;
static _Atomic uint32_t turn, left;
static _Atomic uint64_t share;

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void spin(uint64_t iterations)
{
    for (volatile uint64_t i = 0; i < iterations; i++)
        ;
}

static void rest(_Atomic uint32_t *word, uint32_t while_it_is)
{
    while (atomic_load(word) == while_it_is)
        syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, while_it_is, NULL, NULL, 0);
}

static void wake(_Atomic uint32_t *word, int how_many)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, how_many, NULL, NULL, 0);
}

static void *work(void *arg)
{
    uint64_t which = (uint64_t)(uintptr_t)arg;
    for (uint32_t seen = 0;; seen++) {
        rest(&turn, seen);
        for (uint64_t i = atomic_load(&share); i > 0; i--) {
            which = which * 6364136223846793005u + 1442695040888963407u;
            pthread_mutex_t *lock = &locks[which >> 60].lock;
            pthread_mutex_lock(lock);
            spin(inside);
            pthread_mutex_unlock(lock);
            spin(outside);
        }
        if (atomic_fetch_sub(&left, 1) == 1)
            wake(&left, 1);
    }
    return NULL;
}

// Of this process and its threads to come; -1 if the machine has none.
static int counter(uint64_t config)
{
    struct perf_event_attr attr = {.type = PERF_TYPE_HARDWARE, .size = sizeof attr, .config = config, .inherit = 1};
    return (int)syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0);
}

static uint64_t count(int fd)
{
    uint64_t value = 0;
    if (fd >= 0 && read(fd, &value, sizeof value) != sizeof value)
        value = 0;
    return value;
}

int main(int argc, char **argv)
{
    threads = argc == 2 ? atol(argv[1]) : 0;
    if (threads < 1)
        return 2;
    enum { TRIED = 2000000 };
    uint64_t best = UINT64_MAX;
    for (int i = 0; i < 5; i++) {
        uint64_t begin = clock_ns(CLOCK_THREAD_CPUTIME_ID);
        spin(TRIED);
        uint64_t took = clock_ns(CLOCK_THREAD_CPUTIME_ID) - begin;
        best = took < best ? took : best;
    }
    inside = (uint64_t)INSIDE_NS * TRIED / best;
    outside = (uint64_t)(1000000000 / PER_SECOND - INSIDE_NS) * TRIED / best;
    int references = counter(PERF_COUNT_HW_CACHE_REFERENCES), misses = counter(PERF_COUNT_HW_CACHE_MISSES);
    for (int i = 0; i < LOCKS; i++)
        pthread_mutex_init(&locks[i].lock, NULL);
    for (long i = 0; i < threads; i++) {
        pthread_attr_t attr;
        pthread_t thread;
        pthread_attr_init(&attr);
        pthread_attr_setstacksize(&attr, 64 << 10);
        int error = pthread_create(&thread, &attr, work, (void *)(i + 1));
        if (error) {
            fprintf(stderr, "failed to start a thread: %s\n", strerror(error));
            return 1;
        }
    }
    puts("ready");
    fflush(stdout);
    uint64_t sections;
    while (scanf("%" SCNu64, &sections) == 1) {
        atomic_store(&share, (sections + (uint64_t)threads - 1) / (uint64_t)threads);
        atomic_store(&left, (uint32_t)threads);
        uint64_t wall = clock_ns(CLOCK_MONOTONIC), cpu = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
        uint64_t referred = count(references), missed = count(misses);
        atomic_fetch_add(&turn, 1);
        wake(&turn, INT32_MAX);
        for (uint32_t there; (there = atomic_load(&left)) != 0;)
            rest(&left, there);
        wall = clock_ns(CLOCK_MONOTONIC) - wall, cpu = clock_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu;
        printf("%" PRIu64 " %" PRIu64, wall, cpu);
        if (references >= 0 && misses >= 0)
            printf(" %" PRIu64 " %" PRIu64 "\n", count(references) - referred, count(misses) - missed);
        else
            puts(" - -");
        fflush(stdout);
    }
    return 0;
}
