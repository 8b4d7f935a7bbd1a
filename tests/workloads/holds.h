// Shared by workloads whose holds are to be estimated: busy-waiting for known times, a clock that costs next to nothing, and
// the distribution of one lock's holds as the workload itself measures them, each to a thirty-second of its value.
#ifndef HOLDS_H
#define HOLDS_H

#include "truth.h"
#include <sys/resource.h>

#define HOLD_STEPS 32
#define HOLD_OCTAVES 40

static uint64_t holds_counted[HOLD_OCTAVES * HOLD_STEPS];
static uint64_t holds_sum_ns;

static double ns_per_tick;

// The processor's own constant clock.
static inline uint64_t ticks(void)
{
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
    uint64_t value;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(value));
    return value;
#endif
}

static inline uint64_t ns_of(uint64_t ticks)
{
    return (uint64_t)((double)ticks * ns_per_tick);
}

static inline uint64_t ticks_of(uint64_t ns)
{
    return (uint64_t)((double)ns / ns_per_tick);
}

// To be called before any of the above: compares the clock with the kernel's for 20 ms. From then on other programs rarely
// preempt this one, if its rights allow that: a few preempted sections would decide on the mean hold of thousands.
static inline void prepare(void)
{
    if (setpriority(PRIO_PROCESS, 0, -20) == -1 && errno != EACCES && errno != EPERM)
        die("setpriority", errno);
    uint64_t from = now_ns(), from_ticks = ticks();
    while (now_ns() - from < 20000000)
        ;
    ns_per_tick = (double)(now_ns() - from) / (double)(ticks() - from_ticks);
}

static inline void busy_until(uint64_t ns)
{
    while (now_ns() < ns)
        ;
}

static inline void busy_ticks(uint64_t from, uint64_t count)
{
    while (ticks() - from < count)
        ;
}

// One thread's share of the truth of a lock that is taken too often for the clocks of ACQUIRE: added up at the end.
struct own_truth {
    uint64_t acquisitions, hold_ns;
};

// Adds it; the lock's calls are not timed, so its spans are just its holds.
static inline void settle(struct lock_truth *truth, const struct own_truth *own)
{
    truth->acquisitions += own->acquisitions;
    truth->hold_ns += own->hold_ns;
    truth->span_ns += own->hold_ns;
    my_acquisitions += own->acquisitions;
}

// A section of a known length, in ticks, its hold measured between lock's return and unlock's call and counted. A macro, so
// that the call site is in the function that uses it.
#define SHORT_SECTION(truth, own, length)                         \
    do {                                                          \
        MUST(pthread_mutex_lock((truth)->object));                 \
        uint64_t section_begin = ticks();                         \
        busy_ticks(section_begin, (length));                      \
        uint64_t section_held = ns_of(ticks() - section_begin);   \
        MUST(pthread_mutex_unlock((truth)->object));               \
        (own)->acquisitions++;                                    \
        (own)->hold_ns += section_held;                           \
        count_hold(section_held);                                 \
    } while (0)

// Counts a hold. Not atomic: of one thread only.
static inline void count_hold(uint64_t ns)
{
    unsigned octave = ns < HOLD_STEPS ? 0 : 63 - (unsigned)__builtin_clzll(ns) - 4;
    uint64_t step = octave ? (ns >> (octave - 1)) - HOLD_STEPS : ns;
    size_t bucket = (size_t)octave * HOLD_STEPS + (octave ? step & (HOLD_STEPS - 1) : step);
    if (bucket >= HOLD_OCTAVES * HOLD_STEPS)
        bucket = HOLD_OCTAVES * HOLD_STEPS - 1;
    holds_counted[bucket]++;
    holds_sum_ns += ns;
}

// The middle of a bucket.
static inline uint64_t hold_of(size_t bucket)
{
    uint64_t octave = bucket / HOLD_STEPS, step = bucket % HOLD_STEPS;
    return octave ? ((2 * (HOLD_STEPS + step) + 1) << (octave - 1)) / 2 : step;
}

// States what was counted: holds, hold_mean_ns, hold_p99_ns. They include one reading of the clock, some ns.
static inline void hold_facts(void)
{
    uint64_t total = 0, below = 0;
    for (size_t i = 0; i < HOLD_OCTAVES * HOLD_STEPS; i++)
        total += holds_counted[i];
    fact("holds", total);
    fact("hold_mean_ns", total ? holds_sum_ns / total : 0);
    for (size_t i = 0; i < HOLD_OCTAVES * HOLD_STEPS; i++) {
        below += holds_counted[i];
        if (total && below * 100 >= total * 99) {
            fact("hold_p99_ns", hold_of(i));
            return;
        }
    }
    fact("hold_p99_ns", 0);
}

static void *company(void *arg)
{
    for (;;)
        pause();
    return arg;
}

// Starts a thread that does nothing: with a single one, glibc leaves out the locks' atomic operations.
static inline void keep_company(void)
{
    pthread_t thread;
    MUST(pthread_create(&thread, NULL, company, NULL));
    MUST(pthread_detach(thread));
}

#endif
