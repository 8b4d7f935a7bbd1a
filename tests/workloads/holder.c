// holder sleep ROUNDS: `holder` sleeps for 5 ms while it holds `held_lock` and a victim waits for it.
// holder inherit ROUNDS: the same, where `held_lock` has priority inheritance: its lock call may fail.
// holder vfork ROUNDS: it waits uninterruptibly instead, for a child that sleeps for 5 ms.
// holder io ROUNDS FILE: it writes 1 MB and calls fdatasync.
// holder cond ROUNDS: it waits on a condition variable (and another mutex) for 5 ms.
// holder page ROUNDS: it goes deeper into its stack, to a page that is not there for 5 ms, as one that was swapped out.
// holder preempted ROUNDS: it computes for 10 ms of CPU time, on one CPU with three threads that never sleep.
// Facts: `holder_tid`; `off_ns`, the holder's time off the CPU while it held the lock, and no less than that it took by the
// clock minus by its CPU time; `switches`, how often it gave up the CPU of its own accord meanwhile.
#include "truth.h"
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#define SPINNERS 3
#define OFF_NS 5000000u
#define COMPUTE_NS 10000000u
#define PAGE 4096u
// How far below its callers a function reaches.
#define DEPTH (10u * 1024)

pthread_mutex_t held_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t other_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t never = PTHREAD_COND_INITIALIZER;

static struct lock_truth *truth, *other_truth;
static pthread_barrier_t held, round_over;
static _Atomic pid_t victim_tid;
static _Atomic bool stop;
static long rounds;
static int file = -1;
static char block[1 << 20];
static uint64_t off_ns, switches;

static uint64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

NAMED static void sleeps(void)
{
    sleep_ns(OFF_NS);
}

NAMED static void blocks(void)
{
    pid_t child = vfork();
    if (child == 0) {
        struct timespec t = {.tv_nsec = OFF_NS};
        nanosleep(&t, NULL);
        _exit(0);
    }
    if (child < 0 || waitpid(child, NULL, 0) != child)
        die("vfork", errno);
}

NAMED static void writes(void)
{
    if (pwrite(file, block, sizeof block, 0) != sizeof block || fdatasync(file) != 0)
        die("write", errno);
}

NAMED static void awaits(void)
{
    struct section section;
    struct timespec deadline;
    ACQUIRE(other_truth, &section);
    clock_gettime(CLOCK_REALTIME, &deadline);
    deadline.tv_nsec += OFF_NS;
    deadline.tv_sec += deadline.tv_nsec / 1000000000;
    deadline.tv_nsec %= 1000000000;
    COND_WAIT_BY(other_truth, &section, ETIMEDOUT, pthread_cond_timedwait(&never, &other_lock, &deadline));
    RELEASE(other_truth, &section);
}

NAMED static void computes(void)
{
    uint64_t end = cpu_ns() + COMPUTE_NS;
    while (cpu_ns() < end)
        ;
}

static int faults = -1;
static void *absent;

// Keeps each page away for a while.
static void *provide(void *arg)
{
    struct uffd_msg fault;
    while (read(faults, &fault, sizeof fault) == sizeof fault) {
        sleep_ns(OFF_NS);
        struct uffdio_zeropage page = {.range = {fault.arg.pagefault.address & ~(uint64_t)(PAGE - 1), PAGE}};
        if (ioctl(faults, UFFDIO_ZEROPAGE, &page) != 0)
            die("UFFDIO_ZEROPAGE", errno);
    }
    return arg;
}

// Touches the page that the stack pointer is on.
NAMED static void goes_deep(void)
{
    volatile char room[DEPTH];
    room[0] = 1;
    absent = (void *)((uintptr_t)room & ~(uintptr_t)(PAGE - 1));
}

// Whoever touches that page has to wait for it, if it is not there.
static void watch_page(void)
{
    struct uffdio_api api = {.api = UFFD_API};
    faults = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
    if (faults < 0 || ioctl(faults, UFFDIO_API, &api) != 0)
        die("userfaultfd", errno);
    struct uffdio_register page = {.range = {(uintptr_t)absent, PAGE}, .mode = UFFDIO_REGISTER_MODE_MISSING};
    if (ioctl(faults, UFFDIO_REGISTER, &page) != 0)
        die("UFFDIO_REGISTER", errno);
    pthread_t provider;
    MUST(pthread_create(&provider, NULL, provide, NULL));
    MUST(pthread_detach(provider));
}

NAMED static void faults_in(void)
{
    goes_deep();
    if (faults < 0)
        watch_page();
    if (madvise(absent, PAGE, MADV_DONTNEED) != 0)
        die("madvise", errno);
    goes_deep();
}

static const struct way {
    const char *name;
    void (*hold)(void);
} ways[] = {{"sleep", sleeps}, {"inherit", sleeps}, {"vfork", blocks},
            {"io", writes},    {"cond", awaits},    {"preempted", computes},
            {"page", faults_in}};

static const struct way *way;

static long voluntary(void)
{
    struct rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_nvcsw;
}

NAMED static void holder(void)
{
    struct section section;
    ACQUIRE(truth, &section);
    pthread_barrier_wait(&held);
    await_blocked(&victim_tid, &held_lock, sizeof held_lock);
    long before = voluntary();
    uint64_t begin = now_ns(), cpu = cpu_ns();
    way->hold();
    cpu = cpu_ns() - cpu;
    uint64_t took = now_ns() - begin;
    off_ns += took > cpu ? took - cpu : 0;
    switches += (uint64_t)(voluntary() - before);
    truth->wait_min_ns += took;
    RELEASE(truth, &section);
}

NAMED static void victim_section(void)
{
    struct section section;
    ACQUIRE(truth, &section);
    truth->contended++;
    RELEASE(truth, &section);
}

static void *victim(void *arg)
{
    victim_tid = my_tid();
    for (long i = 0; i < rounds; i++) {
        pthread_barrier_wait(&held);
        victim_section();
        pthread_barrier_wait(&round_over);
    }
    thread_done();
    return arg;
}

static void *spins(void *arg)
{
    while (!stop)
        ;
    return arg;
}

// All threads share the CPU on which this one happens to be.
static void share_one_cpu(pthread_t *spinners)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    if (sched_setaffinity(0, sizeof one, &one) != 0)
        die("sched_setaffinity", errno);
    for (int i = 0; i < SPINNERS; i++)
        MUST(pthread_create(&spinners[i], NULL, spins, NULL));
}

int main(int argc, char **argv)
{
    for (size_t i = 0; argc > 1 && i < sizeof ways / sizeof *ways; i++)
        if (strcmp(argv[1], ways[i].name) == 0)
            way = &ways[i];
    rounds = number(argc, argv, 2, 5);
    bool crowded = way && way->hold == computes;
    if (way && way->hold == writes)
        file = argc > 3 ? open(argv[3], O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600) : -1;
    if (!way || (way->hold == writes && file < 0))
        die("holder", EINVAL);
    if (strcmp(way->name, "inherit") == 0) {
        pthread_mutexattr_t attr;
        MUST(pthread_mutexattr_init(&attr));
        MUST(pthread_mutexattr_setprotocol(&attr, PTHREAD_PRIO_INHERIT));
        MUST(pthread_mutex_init(&held_lock, &attr));
    }
    truth = truth_of("held_lock", &held_lock);
    if (way->hold == awaits)
        other_truth = truth_of("other_lock", &other_lock);
    MUST(pthread_barrier_init(&held, NULL, 2));
    MUST(pthread_barrier_init(&round_over, NULL, 2));
    ready_and_go();
    pthread_t waiting, spinners[SPINNERS];
    if (crowded)
        share_one_cpu(spinners);
    MUST(pthread_create(&waiting, NULL, victim, NULL));
    for (long i = 0; i < rounds; i++) {
        holder();
        pthread_barrier_wait(&round_over);
    }
    stop = true;
    for (int i = 0; crowded && i < SPINNERS; i++)
        MUST(pthread_join(spinners[i], NULL));
    MUST(pthread_join(waiting, NULL));
    thread_done();
    fact("holder_tid", (uint64_t)my_tid());
    fact("off_ns", off_ns);
    fact("switches", switches);
    return finish("holder");
}
