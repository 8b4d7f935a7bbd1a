// A program that is observed by somebody who is killed, for `bench harm`.
//
//   work FILE threads|forks
//
// FILE is shared with the benchmark, as numbers of 8 bytes: the first one is the wait status of a child that was harmed. Each of the four
// workers has 8 of its own from the 8th on: sections made, and of those without contention the number and their CPU time in
// ns. The workers are threads, or processes that are forked anew again and again; the first of these lives for long. Each
// rests most of the time. Ends when stdin is closed.
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { WORKERS = 4, SLOT = 8, TIMED = 300, SHARED = 20, REST_NS = 15000000 };

static struct {
    _Alignas(64) pthread_mutex_t lock;
} own[WORKERS];
static pthread_mutex_t *shared;
static _Atomic uint64_t *page;
static FILE *sink;

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void spin(int iterations)
{
    for (volatile int i = 0; i < iterations; i++)
        ;
}

static void burst(long worker)
{
    _Atomic uint64_t *slot = page + SLOT * (1 + worker);
    uint64_t begin = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    for (int i = 0; i < TIMED; i++) {
        pthread_mutex_lock(&own[worker].lock);
        spin(50);
        pthread_mutex_unlock(&own[worker].lock);
    }
    atomic_fetch_add(&slot[2], clock_ns(CLOCK_THREAD_CPUTIME_ID) - begin);
    atomic_fetch_add(&slot[1], TIMED);
    for (int i = 0; i < SHARED; i++) {
        pthread_mutex_lock(shared);
        spin(2000);
        pthread_mutex_unlock(shared);
    }
    fprintf(sink, "%ld\n", worker);
    fflush(sink);
    atomic_fetch_add(&slot[0], TIMED + SHARED);
    nanosleep(&(struct timespec){.tv_nsec = REST_NS}, NULL);
}

static void *work(void *worker)
{
    for (;;)
        burst((long)worker);
    return NULL;
}

static void *sleep_on(void *arg)
{
    for (;;)
        pause();
    return arg;
}

// glibc skips its atomics while there is one thread only.
static void second_thread(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, sleep_on, NULL) != 0)
        exit(1);
}

static pid_t forked(long worker, uint64_t life_ns)
{
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    second_thread();
    for (uint64_t end = clock_ns(CLOCK_MONOTONIC) + life_ns; clock_ns(CLOCK_MONOTONIC) < end;)
        burst(worker);
    _exit(0);
}

static int is_over(void)
{
    struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
    return poll(&in, 1, 10) > 0;
}

static void forks(void)
{
    pid_t children[WORKERS] = {0};
    second_thread();
    while (!is_over()) {
        for (long worker = 1; worker < WORKERS; worker++) {
            int status = 0;
            pid_t *child = &children[worker];
            if (*child != 0 && waitpid(*child, &status, WNOHANG) == *child) {
                if (status != 0)
                    atomic_store(page, (uint64_t)status);
                *child = 0;
            }
            if (*child == 0)
                *child = forked(worker, worker == 1 ? 6000000000 : 150000000 * (uint64_t)worker);
        }
        burst(0);
    }
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    int file = open(argv[1], O_RDWR);
    page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    sink = fopen("/dev/null", "w");
    if (file < 0 || page == MAP_FAILED || shared == MAP_FAILED || sink == NULL) {
        perror("work");
        return 2;
    }
    pthread_mutexattr_t between;
    pthread_mutexattr_init(&between);
    pthread_mutexattr_setpshared(&between, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(shared, &between);
    puts("ready");
    fflush(stdout);
    if (strcmp(argv[2], "forks") == 0) {
        forks();
        return 0;
    }
    pthread_t thread;
    for (long worker = 0; worker < WORKERS; worker++)
        if (pthread_create(&thread, NULL, work, (void *)worker) != 0)
            return 1;
    while (!is_over())
        ;
    return 0;
}
