// Programs whose locking is known, for the benchmarks that compare observers and that look for growth.
//
//   locker FILE KIND COUNT
//
// KIND tight:     a pair of lock and unlock, one thread; COUNT is ignored
//      sections:  the same with 2,000 iterations inside
//      nested:    COUNT threads, each takes its own lock inside of one of 8 shared ones
//      shared:    COUNT threads, one of 16 locks each time, work inside and outside
//      threads:   COUNT threads, each with a lock of its own
//      locks:     one thread, COUNT locks in turn
//      processes: COUNT processes, one thread and one lock each
//
// FILE is shared with the benchmark, as numbers of 8 bytes: the first one is not 0 while work is to be done, each worker
// has 8 of its own from the 8th on: sections done, CPU time in ns, sections that this CPU time was used for. A second
// thread sleeps in each process, so that glibc does not skip its atomics. The workers rest in nanosleep: neither resting
// nor telling needs a lock. Ends when stdin is closed.
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

enum { SHARED_LOCKS = 16, NESTED_LOCKS = 8, OWN_LOCKS = 512, MANY_LOCKS = 100000, SLOT = 8, MAX_WORKERS = 512 };
// Sections between two looks at the clock of the thread's CPU time, which is a system call.
enum { PER_CLOCK = 10000 };

static pthread_mutex_t tight_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t shared_locks[SHARED_LOCKS], many_locks[MANY_LOCKS];
// Each on a cache line of its own.
static struct {
    _Alignas(64) pthread_mutex_t lock;
} own_locks[OWN_LOCKS];
static _Atomic uint64_t *page;
static long locks_in_use;

static uint64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void spin(int iterations)
{
    for (volatile int i = 0; i < iterations; i++)
        ;
}

static void tight(long worker, uint64_t turn)
{
    (void)worker, (void)turn;
    pthread_mutex_lock(&tight_lock);
    pthread_mutex_unlock(&tight_lock);
}

static void sections(long worker, uint64_t turn)
{
    (void)worker, (void)turn;
    pthread_mutex_lock(&tight_lock);
    spin(2000);
    pthread_mutex_unlock(&tight_lock);
}

static void nested(long worker, uint64_t turn)
{
    pthread_mutex_t *outer = &shared_locks[(turn * 7 + (uint64_t)worker) % NESTED_LOCKS], *inner = &own_locks[worker].lock;
    pthread_mutex_lock(outer);
    spin(200);
    pthread_mutex_lock(inner);
    spin(200);
    pthread_mutex_unlock(inner);
    pthread_mutex_unlock(outer);
    spin(400);
}

static void shared(long worker, uint64_t turn)
{
    pthread_mutex_t *lock = &shared_locks[(turn * 11 + (uint64_t)worker) % SHARED_LOCKS];
    pthread_mutex_lock(lock);
    spin(500);
    pthread_mutex_unlock(lock);
    spin(1500);
}

static void own(long worker, uint64_t turn)
{
    (void)turn;
    pthread_mutex_lock(&own_locks[worker].lock);
    pthread_mutex_unlock(&own_locks[worker].lock);
}

static void many(long worker, uint64_t turn)
{
    (void)worker;
    pthread_mutex_t *lock = &many_locks[turn % (uint64_t)locks_in_use];
    pthread_mutex_lock(lock);
    pthread_mutex_unlock(lock);
}

static const struct kind {
    const char *name;
    void (*section)(long worker, uint64_t turn);
    int batch; // Sections between two looks at whether to rest.
} kinds[] = {{"tight", tight, 100}, {"sections", sections, 1}, {"nested", nested, 1}, {"shared", shared, 1},
             {"threads", own, 100}, {"locks", many, 100},      {"processes", own, 100}};
static const struct kind *kind;

static void *work(void *arg)
{
    long worker = (long)arg;
    _Atomic uint64_t *slot = page + SLOT * (1 + worker);
    uint64_t made = 0, told = 0, begin = 0;
    int working = 0;
    for (;;) {
        int go = atomic_load_explicit(page, memory_order_relaxed) != 0;
        if (go && !working)
            begin = cpu_ns(), told = made, working = 1;
        if (working && (!go || made - told >= PER_CLOCK)) {
            uint64_t now = cpu_ns();
            slot[1] += now - begin;
            slot[2] += made - told;
            begin = now, told = made, working = go;
        }
        if (!go) {
            nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
            continue;
        }
        for (int i = 0; i < kind->batch; i++)
            kind->section(worker, made + (uint64_t)i);
        made += (uint64_t)kind->batch;
        atomic_store_explicit(slot, made, memory_order_relaxed);
    }
    return NULL;
}

static void *sleep_on(void *arg)
{
    for (;;)
        pause();
    return arg;
}

static void start(void *(*function)(void *), long worker)
{
    pthread_attr_t attr;
    pthread_t thread;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, 256 << 10);
    if (pthread_create(&thread, &attr, function, (void *)worker) != 0) {
        fputs("failed to start a thread\n", stderr);
        exit(1);
    }
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    long count = atol(argv[3]);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(argv[2], kinds[i].name) == 0)
            kind = &kinds[i];
    int file = open(argv[1], O_RDWR);
    page = mmap(NULL, sizeof *page * SLOT * (1 + MAX_WORKERS), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (kind == NULL || file < 0 || page == MAP_FAILED || count < 1 ||
        count > (kind->section == many ? MANY_LOCKS : MAX_WORKERS)) {
        fputs("wrong arguments\n", stderr);
        return 2;
    }
    locks_in_use = count;
    int processes = strcmp(kind->name, "processes") == 0, parallel = kind->section == nested ||
        kind->section == shared || strcmp(kind->name, "threads") == 0;
    for (long worker = 0; worker < (processes ? count : 0); worker++)
        if (fork() == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            start(sleep_on, 0);
            work((void *)worker);
        }
    if (!processes) {
        start(sleep_on, 0);
        for (long worker = 0; worker < (parallel ? count : 1); worker++)
            start(work, worker);
    }
    puts("ready");
    fflush(stdout);
    while (getchar() != EOF)
        ;
    return 0;
}
