// meta THREADS ROUNDS HOLD_US LOCAL_US P Q LOCK WORK CHANGE: the meta-benchmark of the QD lock papers: a FIFO queue and a
// pairing heap, each with a lock. After a section on the queue a thread comes back to it with probability P, after one on
// the heap it goes to the queue with probability Q, in between it works on its own for LOCAL_US. A section works on the data
// structure, and lasts HOLD_US (a tenth of that up to twice as long, evenly).
// LOCK: pthread or qd. WORK: sleep (so that the number of CPUs does not matter) or compute. CHANGE: none, half (sections half
// as long), split (each lock into four), removed (no locks, and no data structures).
// Prints the time from the first round to the last, and operations and time at the lock by lock, as JSON.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PARTS 4
#define RING 4096
#define QUEUE 128

struct node {
    uint64_t key;
    struct node *child, *next;
};

// What a lock guards.
struct data {
    uint64_t ring[RING], head, tail;
    struct node *heap;
};

// A QD lock: tried only; who gets it executes what others have put into the queue.
struct qd {
    pthread_mutex_t lock;
    _Atomic uint64_t given;
    _Atomic(struct job *) queue[QUEUE];
};

struct job {
    int which;
    struct data *data;
    uint64_t ns, key;
    struct node *node;
    _Atomic int done;
};

pthread_mutex_t queue_lock[PARTS], heap_lock[PARTS];
static struct qd queue_qd, heap_qd;
static struct data queue_data[PARTS], heap_data[PARTS];
static pthread_barrier_t start;
static long threads, rounds;
static uint64_t hold_ns, local_ns;
static double stay, leave;
static int is_qd, asleep, parts, removed;

struct result {
    uint64_t count[2], wait[2], time[2];
};

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void spend(uint64_t ns)
{
    if (asleep) {
        struct timespec t = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
        nanosleep(&t, NULL);
        return;
    }
    for (uint64_t end = now_ns() + ns; now_ns() < end;)
        ;
}

static struct node *meld(struct node *a, struct node *b)
{
    if (!a || !b)
        return a ? a : b;
    if (b->key < a->key) {
        struct node *swap = a;
        a = b;
        b = swap;
    }
    b->next = a->child;
    a->child = b;
    return a;
}

static struct node *pair_up(struct node *first)
{
    struct node *pairs = NULL, *all = NULL;
    while (first) {
        struct node *a = first, *b = a->next;
        first = b ? b->next : NULL;
        a->next = NULL;
        if (b)
            b->next = NULL;
        a = meld(a, b);
        a->next = pairs;
        pairs = a;
    }
    while (pairs) {
        struct node *next = pairs->next;
        pairs->next = NULL;
        all = meld(all, pairs);
        pairs = next;
    }
    return all;
}

static void work(struct job *job)
{
    uint64_t end = now_ns() + job->ns;
    if (!removed && job->which == 0) {
        job->data->ring[job->data->tail++ % RING] = job->key;
        if (job->data->tail - job->data->head > RING / 2)
            job->data->head++;
    } else if (!removed) {
        struct node *least = job->data->heap;
        job->node->key = job->key;
        job->node->child = job->node->next = NULL;
        job->data->heap = least ? pair_up(least->child) : NULL;
        job->data->heap = meld(job->data->heap, job->node);
        // The least one takes the place of the one that came.
        job->node = least ? least : malloc(sizeof *least);
        if (!job->node)
            abort();
    }
    uint64_t now = now_ns();
    if (now < end)
        spend(end - now);
}

static void delegate(struct qd *qd, struct job *job, uint64_t *wait)
{
    uint64_t asked = now_ns();
    for (;;) {
        if (pthread_mutex_trylock(&qd->lock) == 0) {
            *wait += now_ns() - asked;
            atomic_store(&qd->given, 0);
            work(job);
            for (uint64_t next = 0;;) {
                uint64_t given = atomic_load(&qd->given);
                int closing = given == next || given >= QUEUE;
                if (closing)
                    given = atomic_exchange(&qd->given, QUEUE);
                given = given < QUEUE ? given : QUEUE;
                for (; next < given; next++) {
                    struct job *other;
                    while (!(other = atomic_exchange(&qd->queue[next], NULL)))
                        ;
                    work(other);
                    atomic_store(&other->done, 1);
                }
                if (closing)
                    break;
            }
            pthread_mutex_unlock(&qd->lock);
            return;
        }
        atomic_store(&job->done, 0);
        if (atomic_load(&qd->given) < QUEUE) {
            uint64_t place = atomic_fetch_add(&qd->given, 1);
            if (place < QUEUE) {
                atomic_store(&qd->queue[place], job);
                while (!atomic_load(&job->done))
                    if (asleep)
                        nanosleep(&(struct timespec){0, 20000}, NULL);
                *wait += now_ns() - asked > job->ns ? now_ns() - asked - job->ns : 0;
                return;
            }
        }
        if (asleep)
            nanosleep(&(struct timespec){0, 20000}, NULL);
    }
}

static void *thread(void *arg)
{
    struct result *result = arg;
    uint64_t seed = (uint64_t)(uintptr_t)arg | 1;
    struct node *node = calloc(1, sizeof *node);
    int which = 0;
    pthread_barrier_wait(&start);
    for (long i = 0; i < rounds; i++) {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        double chance = (double)(seed >> 11) / (double)(1ull << 53), length = (double)(seed % 1000) / 1000;
        int part = (int)((seed >> 20) % (uint64_t)parts);
        struct job job = {which, which ? &heap_data[part] : &queue_data[part],
                          (uint64_t)((double)hold_ns * (0.1 + 1.8 * length)), seed, node, 0};
        uint64_t asked = now_ns();
        if (removed) {
            work(&job);
        } else if (is_qd) {
            delegate(which ? &heap_qd : &queue_qd, &job, &result->wait[which]);
        } else {
            pthread_mutex_t *lock = which ? &heap_lock[part] : &queue_lock[part];
            pthread_mutex_lock(lock);
            result->wait[which] += now_ns() - asked;
            work(&job);
            pthread_mutex_unlock(lock);
        }
        node = job.node;
        result->count[which]++;
        result->time[which] += now_ns() - asked;
        which = which ? chance >= leave : chance >= stay;
        spend(local_ns);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc != 10) {
        fprintf(stderr, "usage: meta THREADS ROUNDS HOLD_US LOCAL_US P Q pthread|qd sleep|compute none|half|split|removed\n");
        return 2;
    }
    threads = atol(argv[1]);
    rounds = atol(argv[2]);
    hold_ns = (uint64_t)(atof(argv[3]) * 1000);
    local_ns = (uint64_t)(atof(argv[4]) * 1000);
    stay = atof(argv[5]);
    leave = atof(argv[6]);
    is_qd = !strcmp(argv[7], "qd");
    asleep = !strcmp(argv[8], "sleep");
    parts = strcmp(argv[9], "split") ? 1 : PARTS;
    removed = !strcmp(argv[9], "removed");
    if (!strcmp(argv[9], "half"))
        hold_ns /= 2;
    if (threads < 1 || threads > 64)
        return 2;
    for (int i = 0; i < PARTS; i++) {
        pthread_mutex_init(&queue_lock[i], NULL);
        pthread_mutex_init(&heap_lock[i], NULL);
    }
    pthread_mutex_init(&queue_qd.lock, NULL);
    pthread_mutex_init(&heap_qd.lock, NULL);
    queue_qd.given = heap_qd.given = QUEUE;
    pthread_barrier_init(&start, NULL, (unsigned)threads + 1);
    struct result *results = calloc((size_t)threads, sizeof *results);
    pthread_t *ids = calloc((size_t)threads, sizeof *ids);
    if (!results || !ids)
        return 1;
    for (long i = 0; i < threads; i++)
        if (pthread_create(&ids[i], NULL, thread, &results[i]))
            return 1;
    pthread_barrier_wait(&start);
    uint64_t begin = now_ns();
    for (long i = 0; i < threads; i++)
        pthread_join(ids[i], NULL);
    uint64_t elapsed = now_ns() - begin;
    struct result all = {0};
    for (long i = 0; i < threads; i++)
        for (int lock = 0; lock < 2; lock++) {
            all.count[lock] += results[i].count[lock];
            all.wait[lock] += results[i].wait[lock];
            all.time[lock] += results[i].time[lock];
        }
    printf("{\"elapsed_ns\":%llu,\"count\":[%llu,%llu],\"wait_ns\":[%llu,%llu],\"time_ns\":[%llu,%llu]}\n",
           (unsigned long long)elapsed, (unsigned long long)all.count[0], (unsigned long long)all.count[1],
           (unsigned long long)all.wait[0], (unsigned long long)all.wait[1], (unsigned long long)all.time[0],
           (unsigned long long)all.time[1]);
    return 0;
}
