// What the programs of `bench verdicts` share. A program prints `ready`, with facts that its oracle needs, and works from then
// on. A line `n` on stdin is answered with the operations done so far; any other line sets `told`. `PROGRAM cured` does the
// same work without its culprit.
#ifndef PROGRAM_H
#define PROGRAM_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

// Such functions are too large to be inlined in programs that are not examples.
#define LARGE __attribute__((noinline, noclone))
#define MOST 64

struct done {
    uint64_t count;
    char apart[120];
};

static struct done own_done[MOST];
static struct done *done = own_done;
static int told, cured;

// One more operation of a worker's.
static inline void did(long worker)
{
    __atomic_store_n(&done[worker].count, done[worker].count + 1, __ATOMIC_RELAXED);
}

// Computes: about a nanosecond a step.
static __attribute__((noinline, noclone, unused)) void work(long steps)
{
    uint64_t x = (uint64_t)steps;
    for (long i = 0; i < steps; i++)
        x = x * 6364136223846793005u + 1442695040888963407u;
    __asm__ volatile("" : : "r"(x));
}

static inline uint64_t pseudo_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static inline void die(const char *what)
{
    perror(what);
    exit(1);
}

static inline void sleep_us(long us)
{
    struct timespec time = {us / 1000000, us % 1000000 * 1000};
    nanosleep(&time, NULL);
}

// A service that takes its time to answer: the far end of a socket.
struct service {
    int client, server;
    long takes_us;
};

static __attribute__((unused)) void *serve(void *arg)
{
    struct service *service = (struct service *)arg;
    char byte;
    while (recv(service->server, &byte, 1, 0) == 1) {
        sleep_us(service->takes_us);
        if (send(service->server, &byte, 1, 0) != 1)
            break;
    }
    return NULL;
}

static void begin(void *(*run)(void *), void *arg)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, run, arg))
        die("pthread_create");
    pthread_detach(thread);
}

static inline void connect_service(struct service *service, long takes_us)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends))
        die("socketpair");
    service->client = ends[0];
    service->server = ends[1];
    service->takes_us = takes_us;
    begin(serve, service);
}

static inline void call_service(struct service *service)
{
    char byte = 0;
    if (send(service->client, &byte, 1, 0) != 1 || recv(service->client, &byte, 1, 0) != 1)
        die("service");
}

// An unlinked file of the temporary directory.
static inline int temporary_file(void)
{
    const char *dir = getenv("TMPDIR");
    char path[4096];
    snprintf(path, sizeof path, "%s/verdict-XXXXXX", dir ? dir : "/tmp");
    int file = mkstemp(path);
    if (file < 0 || unlink(path))
        die(path);
    return file;
}

static inline void begin_all(void *(*run)(void *), long first, long count)
{
    for (long i = first; i < first + count; i++)
        begin(run, (void *)i);
}

// The rest of main: answers until stdin ends.
static inline int answer(void)
{
    char line[64];
    printf("\n");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        if (line[0] != 'n') {
            __atomic_store_n(&told, 1, __ATOMIC_RELEASE);
            continue;
        }
        uint64_t sum = 0;
        for (long i = 0; i < MOST; i++)
            sum += __atomic_load_n(&done[i].count, __ATOMIC_RELAXED);
        printf("%llu\n", (unsigned long long)sum);
        fflush(stdout);
    }
    _exit(0);
}

static inline int is_told(void)
{
    return __atomic_load_n(&told, __ATOMIC_ACQUIRE);
}

// The first thing in main.
static inline void start(int argc, char **argv)
{
    cured = argc > 1 && !strcmp(argv[1], "cured");
    printf("ready");
}

// A lock by its place in memory.
static inline void tell_lock(const void *lock, unsigned long size)
{
    printf(" lock=%p+%lu", lock, size);
}
#endif
