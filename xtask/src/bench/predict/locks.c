// locks rate: how many turns of its work this machine does in a second.
// locks LOCK THREADS HOLD_NS LOCAL_NS LOCKS MS RATE: threads do sections of one lock or two and work on their own in between, for
// so long, and before that as long again, which does not count. Both are exponential with these means, and are turns of work: they do not get shorter while a thread is off its CPU.
// After each section a thread goes to either of two locks with the same probability.
// LOCK: mutex, rwlock (to write), spin, ticket, mcs (Concurrency Kit's), qd-wait, qd (queue delegation, whose threads wait for
// what they delegated, or do not). Prints sections and ns.
#define _GNU_SOURCE
#include <ck_spinlock.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ALONE _Alignas(128)
#define LOCKS 2
#define QUANTILES 4096
#define QUEUE 128

enum kind { MUTEX, RWLOCK, SPIN, TICKET, MCS, QD_WAIT, QD, KINDS };
static const char *const names[KINDS] = {"mutex", "rwlock", "spin", "ticket", "mcs", "qd-wait", "qd"};

struct place {
    _Atomic int full;
    uint64_t turns;
    _Atomic int *done;
};

// A queue delegation lock, after Klaftenegger, Sagonas and Winblad: tried only, and who gets it executes what others have put into
// the queue, which is open meanwhile. `given`: places given away; QUEUE or more: closed.
struct qd {
    ALONE _Atomic int held;
    ALONE _Atomic unsigned given;
    struct place queue[QUEUE];
};

struct lock {
    ALONE pthread_mutex_t mutex;
    ALONE pthread_rwlock_t rwlock;
    ALONE ck_spinlock_fas_t spin;
    ALONE ck_spinlock_ticket_t ticket;
    ALONE ck_spinlock_mcs_t mcs;
    struct qd qd;
    // What it guards.
    ALONE uint64_t sections;
};

struct lock queue_lock, heap_lock;
static struct lock *const locks[LOCKS] = {&queue_lock, &heap_lock};
static enum kind kind;
static uint64_t used, hold_turns[QUANTILES], local_turns[QUANTILES];
static pthread_barrier_t start;
// Sections of each thread so far.
#define MOST 64
static struct {
    ALONE _Atomic uint64_t sections;
} done_by[MOST];
static _Atomic int stop;

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void work(uint64_t turns)
{
    for (; turns; turns--)
        __asm__ volatile("" : "+r"(turns));
}

static void section(struct lock *lock, uint64_t turns)
{
    lock->sections++;
    work(turns);
}

static void help(struct lock *lock)
{
    struct qd *qd = &lock->qd;
    for (unsigned next = 0;;) {
        unsigned given = atomic_load_explicit(&qd->given, memory_order_acquire);
        int closing = given == next || given >= QUEUE;
        if (closing)
            given = atomic_exchange(&qd->given, QUEUE);
        given = given < QUEUE ? given : QUEUE;
        for (; next < given; next++) {
            struct place *place = &qd->queue[next];
            while (!atomic_load_explicit(&place->full, memory_order_acquire))
                ck_pr_stall();
            _Atomic int *done = place->done;
            uint64_t turns = place->turns;
            atomic_store_explicit(&place->full, 0, memory_order_relaxed);
            section(lock, turns);
            if (done)
                atomic_store_explicit(done, 1, memory_order_release);
        }
        if (closing)
            return;
    }
}

// With `done` it waits until the section has been executed.
static void delegate(struct lock *lock, uint64_t turns, _Atomic int *done)
{
    struct qd *qd = &lock->qd;
    for (;; ck_pr_stall()) {
        if (!atomic_load_explicit(&qd->held, memory_order_relaxed)
            && !atomic_exchange_explicit(&qd->held, 1, memory_order_acquire)) {
            atomic_store_explicit(&qd->given, 0, memory_order_release);
            section(lock, turns);
            help(lock);
            atomic_store_explicit(&qd->held, 0, memory_order_release);
            return;
        }
        if (atomic_load_explicit(&qd->given, memory_order_relaxed) >= QUEUE)
            continue;
        unsigned at = atomic_fetch_add(&qd->given, 1);
        if (at >= QUEUE)
            continue;
        qd->queue[at].turns = turns;
        qd->queue[at].done = done;
        atomic_store_explicit(&qd->queue[at].full, 1, memory_order_release);
        if (done) {
            while (!atomic_load_explicit(done, memory_order_acquire))
                ck_pr_stall();
            atomic_store_explicit(done, 0, memory_order_relaxed);
        }
        return;
    }
}

static void use(struct lock *lock, uint64_t turns, ck_spinlock_mcs_context_t *node, _Atomic int *done)
{
    switch (kind) {
    case MUTEX:
        pthread_mutex_lock(&lock->mutex);
        section(lock, turns);
        pthread_mutex_unlock(&lock->mutex);
        break;
    case RWLOCK:
        pthread_rwlock_wrlock(&lock->rwlock);
        section(lock, turns);
        pthread_rwlock_unlock(&lock->rwlock);
        break;
    case SPIN:
        ck_spinlock_fas_lock(&lock->spin);
        section(lock, turns);
        ck_spinlock_fas_unlock(&lock->spin);
        break;
    case TICKET:
        ck_spinlock_ticket_lock(&lock->ticket);
        section(lock, turns);
        ck_spinlock_ticket_unlock(&lock->ticket);
        break;
    case MCS:
        ck_spinlock_mcs_lock(&lock->mcs, node);
        section(lock, turns);
        ck_spinlock_mcs_unlock(&lock->mcs, node);
        break;
    case QD_WAIT:
        delegate(lock, turns, done);
        break;
    default:
        delegate(lock, turns, NULL);
    }
}

static void *thread(void *arg)
{
    ALONE ck_spinlock_mcs_context_t node;
    ALONE _Atomic int done = 0;
    uint64_t seed = (uint64_t)(uintptr_t)arg * 0x9e3779b97f4a7c15u | 1, sections = 0;
    _Atomic uint64_t *mine = &done_by[(uintptr_t)arg - 1].sections;
    pthread_barrier_wait(&start);
    while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        struct lock *lock = locks[(seed >> 40) % used];
        use(lock, hold_turns[(seed >> 8) % QUANTILES], &node, &done);
        atomic_store_explicit(mine, ++sections, memory_order_relaxed);
        work(local_turns[(seed >> 24) % QUANTILES]);
    }
    return (void *)(uintptr_t)sections;
}

static uint64_t sections_so_far(long threads)
{
    uint64_t all = 0;
    for (long i = 0; i < threads; i++)
        all += atomic_load_explicit(&done_by[i].sections, memory_order_relaxed);
    return all;
}

static double rate(void)
{
    double best = 0;
    for (int i = 0; i < 20; i++) {
        uint64_t begin = now_ns();
        work(1000000);
        double now = 1e15 / (double)(now_ns() - begin);
        best = now > best ? now : best;
    }
    return best;
}

static void exponential(uint64_t turns[QUANTILES], double mean)
{
    for (int i = 0; i < QUANTILES; i++)
        turns[i] = (uint64_t)(0.5 - log((i + 0.5) / QUANTILES) * mean);
}

int main(int argc, char **argv)
{
    if (argc == 2 && !strcmp(argv[1], "rate")) {
        printf("%.0f\n", rate());
        return 0;
    }
    if (argc != 8) {
        fprintf(stderr, "usage: locks rate | locks LOCK THREADS HOLD_NS LOCAL_NS LOCKS MS RATE\n");
        return 2;
    }
    while (kind < KINDS && strcmp(argv[1], names[kind]))
        kind++;
    long threads = atol(argv[2]), ms = atol(argv[6]);
    double per_ns = atof(argv[7]) / 1e9;
    used = strtoul(argv[5], NULL, 10);
    if (kind == KINDS || threads < 1 || threads > MOST || used < 1 || used > LOCKS || ms < 1 || per_ns <= 0) {
        fprintf(stderr, "locks: no such lock, or a number out of range\n");
        return 2;
    }
    exponential(hold_turns, atof(argv[3]) * per_ns);
    exponential(local_turns, atof(argv[4]) * per_ns);
    for (int i = 0; i < LOCKS; i++) {
        pthread_mutex_init(&locks[i]->mutex, NULL);
        pthread_rwlock_init(&locks[i]->rwlock, NULL);
        ck_spinlock_fas_init(&locks[i]->spin);
        ck_spinlock_ticket_init(&locks[i]->ticket);
        ck_spinlock_mcs_init(&locks[i]->mcs);
        locks[i]->qd.given = QUEUE;
    }
    pthread_barrier_init(&start, NULL, (unsigned)threads + 1);
    pthread_t ids[MOST];
    for (long i = 0; i < threads; i++)
        if (pthread_create(&ids[i], NULL, thread, (void *)(uintptr_t)(i + 1)))
            return 1;
    pthread_barrier_wait(&start);
    struct timespec pause = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&pause, NULL);
    uint64_t before = sections_so_far(threads), begin = now_ns();
    nanosleep(&pause, NULL);
    uint64_t counted = sections_so_far(threads) - before, elapsed = now_ns() - begin;
    atomic_store(&stop, 1);
    uint64_t sections = 0;
    for (long i = 0; i < threads; i++) {
        void *result;
        pthread_join(ids[i], &result);
        sections += (uintptr_t)result;
    }
    // Every section was executed, and no two at once.
    if (sections != locks[0]->sections + locks[1]->sections) {
        fprintf(stderr, "locks: sections were lost\n");
        return 1;
    }
    printf("%llu %llu\n", (unsigned long long)counted, (unsigned long long)elapsed);
    return 0;
}
