// openmp ROUNDS FREE: OpenMP's critical sections, named and not, and its locks. Two threads take each FREE times, one after the other, and ROUNDS
// times `slow_holder` has it until `latecomer` has begun to wait for it, and for 3 ms more.
#include "truth.h"

#include <omp.h>

#define HELD_NS 3000000

enum what { TALLY, UNNAMED, LOCK, NEST, ATOMIC, KINDS };

static omp_lock_t own_lock;
static omp_nest_lock_t own_nest;
static struct lock_truth *truths[KINDS];
static _Atomic pid_t late_tid;
static _Atomic bool is_held, asks;
static clockid_t late_clock;
static long double sum;

// Pragmas, so that the call is in the function that uses this.
#define SECTION(what, ...)                          \
    switch (what) {                                 \
    case TALLY:                                     \
        _Pragma("omp critical(tally)") { __VA_ARGS__; } \
        break;                                      \
    case UNNAMED:                                   \
        _Pragma("omp critical") { __VA_ARGS__; }    \
        break;                                      \
    case LOCK:                                      \
        omp_set_lock(&own_lock);                    \
        __VA_ARGS__;                                \
        omp_unset_lock(&own_lock);                  \
        break;                                      \
    default:                                        \
        omp_set_nest_lock(&own_nest);               \
        omp_set_nest_lock(&own_nest);               \
        __VA_ARGS__;                                \
        omp_unset_nest_lock(&own_nest);             \
        omp_unset_nest_lock(&own_nest);             \
    }

static void had(enum what what)
{
    truths[what]->acquisitions++;
    my_acquisitions++;
}

static uint64_t late_cpu_ns(void)
{
    struct timespec t;
    clock_gettime(late_clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

// Whether the latecomer sleeps. Once it asks, it does nothing else before it has the lock.
static bool late_sleeps(void)
{
    char path[64], state = 0;
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", late_tid);
    FILE *file = fopen(path, "r");
    bool sleeps = file && fscanf(file, "%*d (%*[^)]) %c", &state) == 1 && state == 'S';
    if (file)
        fclose(file);
    return sleeps;
}

// Until the latecomer waits, on the CPU or asleep.
static void hold_while_waited_for(enum what what)
{
    had(what);
    is_held = true;
    while (!asks)
        sleep_ns(100000);
    uint64_t begun = late_cpu_ns();
    while (late_cpu_ns() - begun < 200000 && !late_sleeps())
        sleep_ns(100000);
    uint64_t from = now_ns();
    sleep_ns(HELD_NS);
    truths[what]->wait_min_ns += now_ns() - from;
    is_held = false;
}

NAMED static void slow_holder(enum what what)
{
    SECTION(what, hold_while_waited_for(what))
}

NAMED static void latecomer(enum what what)
{
    while (!is_held)
        ;
    uint64_t called = now_ns();
    asks = true;
    SECTION(what, truths[what]->call_ns += now_ns() - called; asks = false; had(what))
    truths[what]->contended++;
}

NAMED static void quick_user(enum what what)
{
    SECTION(what, had(what))
}

// Threads take turns, so nothing is lost where the compiler has no function of OpenMP's for this.
NAMED static void add(long double what)
{
#ifndef __clang__
#pragma omp atomic
#endif
    sum += what;
}

NAMED static void try_in_vain(long times)
{
    for (long i = 0; i < times; i++) {
        if (omp_test_lock(&own_lock))
            die("omp_test_lock", EEXIST);
        truths[LOCK]->try_failures++;
    }
}

int main(int argc, char **argv)
{
    long rounds = number(argc, argv, 1, 20), free = number(argc, argv, 2, 500);
    truths[TALLY] = truth_of("tally", NULL);
    truths[UNNAMED] = truth_of("unnamed", NULL);
    truths[LOCK] = truth_of("own_lock", &own_lock);
    truths[NEST] = truth_of("own_nest", &own_nest);
    truths[ATOMIC] = truth_of("atomic", &sum);
    omp_init_lock(&own_lock);
    omp_init_nest_lock(&own_nest);
    ready_and_go();
#pragma omp parallel num_threads(2)
    {
        bool is_first = omp_get_thread_num() == 0;
        if (!is_first) {
            late_tid = my_tid();
            MUST(pthread_getcpuclockid(pthread_self(), &late_clock));
        }
#pragma omp barrier
        for (int turn = 0; turn < 2; turn++) {
            if (is_first == (turn == 0)) {
                for (enum what what = TALLY; what <= NEST; what++)
                    for (long i = 0; i < free; i++)
                        quick_user(what);
                for (long i = 0; i < free; i++)
                    add(1);
                truths[ATOMIC]->acquisitions += free;
            }
#pragma omp barrier
        }
        if (is_first)
            omp_set_lock(&own_lock), had(LOCK);
#pragma omp barrier
        if (!is_first)
            try_in_vain(free);
#pragma omp barrier
        if (is_first)
            omp_unset_lock(&own_lock);
        for (enum what what = TALLY; what <= NEST; what++)
            for (long i = 0; i < rounds; i++) {
#pragma omp barrier
                if (is_first)
                    slow_holder(what);
                else
                    latecomer(what);
            }
        thread_done();
    }
    if (sum != 2 * free)
        die("atomic", ERANGE);
    return finish("openmp");
}
