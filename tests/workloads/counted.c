// counted ROUNDS OUTER INNER: in each round touches OUTER fresh pages under `outer_lock`, then INNER more under `inner_lock`
// as well, and as many again under none; under `idle_lock` it touches none.
// counted ROUNDS OUTER INNER crowd: the same on one CPU with a thread that does nothing but touch fresh pages; each inner section
// then takes 10 ms of CPU time as well.
// Facts: `inner_cpu_ns`, CPU time inside of the inner sections, no more than that; `outer_cpu_ns` likewise.
#include "truth.h"
#include <sched.h>
#include <sys/mman.h>

#define PAGE 4096u
#define COMPUTE_NS 10000000u
#define CROWD_PAGES 64

pthread_mutex_t outer_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t inner_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t idle_lock = PTHREAD_MUTEX_INITIALIZER;

static struct lock_truth *outer_truth, *inner_truth, *idle_truth;
static char *fresh;
static bool crowd;
static uint64_t inner_cpu_ns, outer_cpu_ns;
static _Atomic bool stop;

static uint64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static char *pages(long count)
{
    size_t size = (size_t)count * PAGE;
    char *area = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (area == MAP_FAILED)
        die("mmap", errno);
    // One page a fault.
    madvise(area, size, MADV_NOHUGEPAGE);
    return area;
}

static void touch(long count)
{
    for (long i = 0; i < count; i++, fresh += PAGE)
        *(volatile char *)fresh = 1;
}

NAMED static void inner_section(long count)
{
    struct section section;
    ACQUIRE(inner_truth, &section);
    uint64_t begin = cpu_ns();
    touch(count);
    while (crowd && cpu_ns() < begin + COMPUTE_NS)
        ;
    inner_cpu_ns += cpu_ns() - begin;
    RELEASE(inner_truth, &section);
}

NAMED static void outer_section(long outer, long inner)
{
    struct section section;
    ACQUIRE(outer_truth, &section);
    uint64_t begin = cpu_ns();
    touch(outer);
    inner_section(inner);
    outer_cpu_ns += cpu_ns() - begin;
    RELEASE(outer_truth, &section);
}

NAMED static void idle_section(void)
{
    struct section section;
    ACQUIRE(idle_truth, &section);
    RELEASE(idle_truth, &section);
}

static void *faults(void *arg)
{
    char *area = pages(CROWD_PAGES);
    while (!stop) {
        for (int i = 0; i < CROWD_PAGES; i++)
            *(volatile char *)(area + (size_t)i * PAGE) = 1;
        madvise(area, CROWD_PAGES * PAGE, MADV_DONTNEED);
    }
    return arg;
}

static void round_of(long outer, long inner)
{
    outer_section(outer, inner);
    touch(outer + inner);
    idle_section();
}

int main(int argc, char **argv)
{
    long rounds = number(argc, argv, 1, 20), outer = number(argc, argv, 2, 3), inner = number(argc, argv, 3, 5);
    outer_truth = truth_of("outer_lock", &outer_lock);
    inner_truth = truth_of("inner_lock", &inner_lock);
    idle_truth = truth_of("idle_lock", &idle_lock);
    fresh = pages(rounds * 2 * (outer + inner));
    ready_and_go();
    bool crowded = argc > 4 && strcmp(argv[4], "crowd") == 0;
    pthread_t other;
    if (crowded) {
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(sched_getcpu(), &one);
        if (sched_setaffinity(0, sizeof one, &one) != 0)
            die("sched_setaffinity", errno);
        MUST(pthread_create(&other, NULL, faults, NULL));
    }
    // The probes' own pages, and those of what is called, are there after this. On aarch64 one comes in during this round, unless
    // a thread was made before.
    round_of(0, 0);
    inner_cpu_ns = outer_cpu_ns = 0;
    crowd = crowded;
    for (long i = 0; i < rounds; i++)
        round_of(outer, inner);
    stop = true;
    if (crowded)
        MUST(pthread_join(other, NULL));
    thread_done();
    fact("inner_cpu_ns", inner_cpu_ns);
    fact("outer_cpu_ns", outer_cpu_ns);
    return finish("counted");
}
