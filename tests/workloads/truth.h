// Shared by every workload: the start signal, clocks, lock calls that are counted and timed, and the truth that is
// printed at the end.
//
// Protocol: a workload prints "ready" on stdout, waits for one byte on stdin ("go"), works, prints its truth as one line
// of JSON and exits; with LINGER in its environment it stays until stdin is closed, with GO it does not wait.
//
// The times are bounds that hold for any correct observer, on a busy machine too, since the clock is read outside of
// the calls that are probed:
//   call_ns  sum of (lock returned - lock called), every kind of lock call:     waiting of an observer <= call_ns
//   hold_ns  sum of (unlock called - lock returned):                            holding of an observer >= hold_ns
//   span_ns  sum of (unlock returned, or the lock call failed, - lock called):
//                                                                    waiting + holding of an observer <= span_ns
//   wait_min_ns  waiting that exists by construction, if any:                   waiting of an observer >= wait_min_ns
#ifndef TRUTH_H
#define TRUTH_H

#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "blocked.h"

// musl has no deadlines of other clocks, and no adaptive mutexes.
#ifndef __GLIBC__
#define pthread_mutex_clocklock(lock, clock, deadline) ((void)(clock), pthread_mutex_timedlock((lock), (deadline)))
#define pthread_rwlock_clockrdlock(lock, clock, deadline) ((void)(clock), pthread_rwlock_timedrdlock((lock), (deadline)))
#define pthread_rwlock_clockwrlock(lock, clock, deadline) ((void)(clock), pthread_rwlock_timedwrlock((lock), (deadline)))
#define pthread_cond_clockwait(cond, lock, clock, deadline) \
    ((void)(clock), pthread_cond_timedwait((cond), (lock), (deadline)))
#define PTHREAD_MUTEX_ADAPTIVE_NP PTHREAD_MUTEX_NORMAL
#endif

// A function that keeps its name and its own frame: never inlined, cloned or merged.
#ifdef __clang__
#define NAMED __attribute__((noinline))
#else
#define NAMED __attribute__((noipa))
#endif

#define MAX_LOCKS 64
#define MAX_THREADS 4096
#define MAX_FACTS 32

// What is true of one lock.
struct lock_truth {
    const char *symbol; // as the symbol table has it; NULL for a lock on the heap or on a stack
    void *object;
    _Atomic uint64_t acquisitions, contended, try_failures, timeouts, errors;
    _Atomic uint64_t call_ns, hold_ns, span_ns, wait_min_ns;
};

// One critical section of one thread while it lasts.
struct section {
    uint64_t called, acquired;
};

// What is true of one thread.
struct thread_truth {
    pid_t tid;
    uint64_t acquisitions;
};

static struct lock_truth truth_locks[MAX_LOCKS];
static _Atomic int truth_lock_count;
static struct thread_truth truth_threads[MAX_THREADS];
static _Atomic int truth_thread_count;
static struct {
    char name[32];
    uint64_t value;
} truth_facts[MAX_FACTS];
static _Atomic int truth_fact_count;
static _Thread_local uint64_t my_acquisitions;

static inline void die(const char *what, int error)
{
    fprintf(stderr, "%s: %s\n", what, strerror(error));
    exit(70);
}

// Ends the workload loudly if a call that must succeed did not.
#define MUST(call)                  \
    do {                            \
        int must_error = (call);    \
        if (must_error)             \
            die(#call, must_error); \
    } while (0)

// Ends the workload loudly if a call did not return exactly this error.
#define MUST_BE(expected, call)          \
    do {                                 \
        int must_error = (call);         \
        if (must_error != (expected))    \
            die(#call " is not " #expected, must_error); \
    } while (0)

static inline uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

// CPU time of this thread.
static inline uint64_t own_cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline void sleep_ns(uint64_t ns)
{
    struct timespec t = {.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};
    while (nanosleep(&t, &t) == -1 && errno == EINTR)
        ;
}

static inline pid_t my_tid(void)
{
    return (pid_t)syscall(SYS_gettid);
}

// The value of a decimal argument, or a default where it is absent.
static inline long number(int argc, char **argv, int index, long otherwise)
{
    return index < argc ? strtol(argv[index], NULL, 10) : otherwise;
}

// Registers a lock whose truth is to be printed.
static inline struct lock_truth *truth_of(const char *symbol, void *object)
{
    int index = truth_lock_count++;
    if (index >= MAX_LOCKS)
        die("truth_of", ENOSPC);
    truth_locks[index].symbol = symbol;
    truth_locks[index].object = object;
    return &truth_locks[index];
}

// Registers a number of the workload's own.
static inline void fact(const char *name, uint64_t value)
{
    int index = truth_fact_count++;
    if (index >= MAX_FACTS)
        die("fact", ENOSPC);
    snprintf(truth_facts[index].name, sizeof truth_facts[index].name, "%s", name);
    truth_facts[index].value = value;
}

// To be called by every thread that locks, when it has finished.
static inline void thread_done(void)
{
    int index = truth_thread_count++;
    if (index < MAX_THREADS)
        truth_threads[index] = (struct thread_truth){my_tid(), my_acquisitions};
}

static inline void acquired(struct lock_truth *truth, struct section *section)
{
    section->acquired = now_ns();
    truth->acquisitions++;
    truth->call_ns += section->acquired - section->called;
    my_acquisitions++;
}

static inline void failed(struct lock_truth *truth, uint64_t called)
{
    uint64_t took = now_ns() - called;
    truth->call_ns += took;
    truth->span_ns += took;
}

// Lock calls are macros, so that the call site is in the function that uses them.
#define ACQUIRE_BY(truth, section, call) \
    do {                                 \
        (section)->called = now_ns();    \
        MUST(call);                      \
        acquired((truth), (section));    \
    } while (0)
#define ACQUIRE(truth, section) ACQUIRE_BY(truth, section, pthread_mutex_lock((truth)->object))

// A lock call that must fail; its time counts as time in lock calls.
#define FAIL_BY(truth, counter, expected, call)       \
    do {                                              \
        uint64_t fail_called = now_ns();              \
        MUST_BE(expected, call);                      \
        failed((truth), fail_called);                 \
        (truth)->counter++;                           \
    } while (0)

#define RELEASE_BY(truth, section, call)                            \
    do {                                                            \
        (truth)->hold_ns += now_ns() - (section)->acquired;         \
        MUST(call);                                                 \
        (truth)->span_ns += now_ns() - (section)->called;           \
    } while (0)
#define RELEASE(truth, section) RELEASE_BY(truth, section, pthread_mutex_unlock((truth)->object))

// Waits on a condition variable: one critical section ends and the next begins. The span includes the idle time.
#define COND_WAIT_BY(truth, section, expected, call)                \
    do {                                                            \
        uint64_t wait_called = now_ns();                            \
        (truth)->hold_ns += wait_called - (section)->acquired;      \
        MUST_BE(expected, call);                                    \
        (section)->acquired = now_ns();                             \
        (truth)->acquisitions++;                                    \
        (truth)->call_ns += (section)->acquired - wait_called;      \
        my_acquisitions++;                                          \
    } while (0)
#define COND_WAIT(truth, section, cond) COND_WAIT_BY(truth, section, 0, pthread_cond_wait((cond), (truth)->object))

// Returns once the thread whose tid appears in *tid sleeps for the object: what follows is certain to be waited for.
static inline void await_blocked(_Atomic pid_t *tid, const void *object, size_t size)
{
    while (*tid == 0 || !blocked_on(*tid, object, size))
        sleep_ns(100000);
}

static inline void ready(void)
{
    puts("ready");
    fflush(stdout);
}

static inline void await_go(void)
{
    char byte;
    if (getenv("GO"))
        return;
    if (read(STDIN_FILENO, &byte, 1) != 1)
        die("no go on stdin", EPIPE);
}

static inline void ready_and_go(void)
{
    ready();
    await_go();
}

static inline void print_truth(const char *workload)
{
    printf("{\"workload\":\"%s\",\"pid\":%d,\"locks\":[", workload, getpid());
    for (int i = 0; i < truth_lock_count; i++) {
        struct lock_truth *t = &truth_locks[i];
        printf("%s{\"symbol\":", i ? "," : "");
        if (t->symbol)
            printf("\"%s\"", t->symbol);
        else
            printf("null");
        printf(",\"addr\":\"0x%" PRIxPTR "\"", (uintptr_t)t->object);
#define FIELD(name) printf(",\"" #name "\":%" PRIu64, (uint64_t)t->name)
        FIELD(acquisitions);
        FIELD(contended);
        FIELD(try_failures);
        FIELD(timeouts);
        FIELD(errors);
        FIELD(call_ns);
        FIELD(hold_ns);
        FIELD(span_ns);
        FIELD(wait_min_ns);
#undef FIELD
        printf("}");
    }
    printf("],\"threads\":[");
    int threads = truth_thread_count < MAX_THREADS ? truth_thread_count : MAX_THREADS;
    for (int i = 0; i < threads; i++)
        printf("%s{\"tid\":%d,\"acquisitions\":%" PRIu64 "}", i ? "," : "", truth_threads[i].tid,
               truth_threads[i].acquisitions);
    printf("],\"facts\":{");
    for (int i = 0; i < truth_fact_count; i++)
        printf("%s\"%s\":%" PRIu64, i ? "," : "", truth_facts[i].name, truth_facts[i].value);
    printf("}}\n");
    fflush(stdout);
}

static inline void linger(void)
{
    char byte;
    if (getenv("LINGER"))
        while (read(STDIN_FILENO, &byte, 1) > 0)
            ;
}

// Prints the truth and, if asked to, stays alive.
static inline int finish(const char *workload)
{
    print_truth(workload);
    linger();
    return 0;
}

#endif
