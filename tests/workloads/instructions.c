// instructions ROUNDS ITERATIONS: ROUNDS sections under `counted_lock`, each of ITERATIONS iterations of a loop of 4 instructions.
// instructions ROUNDS ITERATIONS crowd: the same on one CPU with two threads that compute all the time.
// instructions ROUNDS ITERATIONS multiplex: meanwhile 12 more events are counted on each CPU, which take turns with an observer's.
// Facts: `section`, instructions of the loop in each section; `sections`, how many there were.
#include "truth.h"
#include "loop.h"
#include <linux/perf_event.h>
#include <sched.h>

#define RIVALS 2
#define EVENTS 12

pthread_mutex_t counted_lock = PTHREAD_MUTEX_INITIALIZER;

static struct lock_truth *counted_truth;
static _Atomic bool stop;

NAMED static void counted_section(long iterations)
{
    struct section section;
    ACQUIRE(counted_truth, &section);
    loop(iterations);
    RELEASE(counted_truth, &section);
}

static void *computes(void *arg)
{
    while (!stop)
        loop(1000);
    return arg;
}

static void one_cpu_for_all(pthread_t *rivals)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    if (sched_setaffinity(0, sizeof one, &one) != 0)
        die("sched_setaffinity", errno);
    for (int i = 0; i < RIVALS; i++)
        MUST(pthread_create(&rivals[i], NULL, computes, NULL));
}

// Counts events on each CPU, for whoever runs there, until the end.
static void count_more(void)
{
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    for (int cpu = 0; cpu < cpus; cpu++)
        for (int i = 0; i < EVENTS; i++) {
            struct perf_event_attr attr = {
                .type = PERF_TYPE_HARDWARE,
                .size = sizeof attr,
                .config = i % 2 ? PERF_COUNT_HW_INSTRUCTIONS : PERF_COUNT_HW_CPU_CYCLES,
            };
            if (syscall(SYS_perf_event_open, &attr, -1, cpu, -1, 0) < 0)
                die("perf_event_open", errno);
        }
}

int main(int argc, char **argv)
{
    long rounds = number(argc, argv, 1, 20), iterations = number(argc, argv, 2, 250000);
    const char *way = argc > 3 ? argv[3] : "";
    bool crowd = strcmp(way, "crowd") == 0;
    counted_truth = truth_of("counted_lock", &counted_lock);
    ready_and_go();
    if (strcmp(way, "multiplex") == 0)
        count_more();
    pthread_t rivals[RIVALS];
    if (crowd)
        one_cpu_for_all(rivals);
    for (long i = 0; i < rounds; i++)
        counted_section(iterations);
    stop = true;
    for (int i = 0; crowd && i < RIVALS; i++)
        MUST(pthread_join(rivals[i], NULL));
    thread_done();
    fact("section", (uint64_t)iterations * LOOP);
    fact("sections", (uint64_t)rounds);
    return finish("instructions");
}
