// conditions MODE ROUNDS: what programs make of condition variables. Each of the six threads does ROUNDS rounds.
//   rows     a lock, as a database locks a row: whoever waits for it has a condition of its own, and whoever gives it back lets the first in
//            the queue go on. One thread holds it for 10 ms a round in `long_update`, the others for 1 ms in `short_update`.
//            Facts: waits, waited_ns (all of it, from the call on); of which, by who held it meanwhile, long_ns and short_ns.
//   herd     the same with one condition for all: whoever gives it back wakes all that wait, and the others wait on.
//   tasks    no lock: threads wait in `next_task` until there is work, of which each task may make more: two tasks in four make one or three others.
//   service  no lock: three threads ask for an answer in `request`, for which three others work in `serve`. All wait in `await`.
#include "truth.h"

#define THREADS 6
#define MAX_TASKS 4096

struct waiter {
    pthread_cond_t granted;
    struct waiter *next;
    uint64_t since;
    int woken;
};

struct event {
    pthread_mutex_t mutex;
    pthread_cond_t set;
    int is_set;
};

static pthread_mutex_t rows_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t given_back = PTHREAD_COND_INITIALIZER;
static struct waiter *first_waiter, **last_waiter = &first_waiter;
static int taken;
static uint64_t taken_at, waits, waited_ns, waited_by[2];

static pthread_mutex_t tasks_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t more_tasks = PTHREAD_COND_INITIALIZER;
static long tasks, done, to_do;

static struct event asked[THREADS / 2], answered[THREADS / 2];

static long rounds;
static int (*wait_for_row)(struct waiter *own);
static void (*let_go)(void);

NAMED static int wait_for_own(struct waiter *own)
{
    while (!own->woken)
        MUST(pthread_cond_wait(&own->granted, &rows_mutex));
    return 0;
}

NAMED static int wait_for_all(struct waiter *own)
{
    while (!own->woken)
        MUST(pthread_cond_wait(&given_back, &rows_mutex));
    return 0;
}

NAMED static void wake_next(void)
{
    pthread_cond_signal(&first_waiter->granted);
}

NAMED static void wake_all(void)
{
    pthread_cond_broadcast(&given_back);
}

NAMED static void lock_row(struct waiter *own)
{
    MUST(pthread_mutex_lock(&rows_mutex));
    if (taken) {
        *own = (struct waiter){ .granted = PTHREAD_COND_INITIALIZER, .since = now_ns() };
        *last_waiter = own;
        last_waiter = &own->next;
        waits++;
        wait_for_row(own);
        waited_ns += now_ns() - own->since;
    }
    taken = 1;
    taken_at = now_ns();
    MUST(pthread_mutex_unlock(&rows_mutex));
}

NAMED static void unlock_row(int is_long)
{
    MUST(pthread_mutex_lock(&rows_mutex));
    uint64_t now = now_ns();
    for (struct waiter *waiter = first_waiter; waiter; waiter = waiter->next)
        waited_by[is_long] += now - (waiter->since > taken_at ? waiter->since : taken_at);
    taken = first_waiter != NULL;
    if (first_waiter) {
        first_waiter->woken = 1;
        let_go();
        first_waiter = first_waiter->next;
        if (!first_waiter)
            last_waiter = &first_waiter;
    }
    MUST(pthread_mutex_unlock(&rows_mutex));
}

NAMED static void long_update(struct waiter *own)
{
    lock_row(own);
    sleep_ns(10000000);
    unlock_row(1);
    __asm__ volatile("");
}

NAMED static void short_update(struct waiter *own)
{
    lock_row(own);
    sleep_ns(1000000);
    unlock_row(0);
    __asm__ volatile("");
}

static void *update(void *arg)
{
    struct waiter own;
    for (long i = 0; i < rounds; i++) {
        if (arg)
            long_update(&own);
        else
            short_update(&own);
    }
    thread_done();
    return NULL;
}

// How many tasks a task makes: one on average, so that there is work for some of the threads.
NAMED static void run_task(unsigned *random)
{
    static const int others[] = { 0, 0, 1, 3 };
    sleep_ns(500000);
    *random = *random * 1103515245 + 12345;
    int more = others[*random >> 16 & 3];
    MUST(pthread_mutex_lock(&tasks_mutex));
    done++;
    // As many threads as there are, at most; and never none.
    if (tasks + more > THREADS)
        more = 0;
    if (tasks + more == 0)
        more = 2;
    tasks += more;
    for (int i = 0; i < more; i++)
        pthread_cond_signal(&more_tasks);
    if (done >= to_do)
        pthread_cond_broadcast(&more_tasks);
    MUST(pthread_mutex_unlock(&tasks_mutex));
}

NAMED static int next_task(void)
{
    MUST(pthread_mutex_lock(&tasks_mutex));
    while (!tasks && done < to_do)
        MUST(pthread_cond_wait(&more_tasks, &tasks_mutex));
    int any = done < to_do;
    tasks -= any;
    MUST(pthread_mutex_unlock(&tasks_mutex));
    return any;
}

static void *work(void *arg)
{
    unsigned random = (unsigned)(uintptr_t)arg * 7919 + 1;
    while (next_task())
        run_task(&random);
    thread_done();
    return NULL;
}

NAMED static void await(struct event *event)
{
    MUST(pthread_mutex_lock(&event->mutex));
    while (!event->is_set)
        MUST(pthread_cond_wait(&event->set, &event->mutex));
    event->is_set = 0;
    MUST(pthread_mutex_unlock(&event->mutex));
}

NAMED static void announce(struct event *event)
{
    MUST(pthread_mutex_lock(&event->mutex));
    event->is_set = 1;
    pthread_cond_signal(&event->set);
    MUST(pthread_mutex_unlock(&event->mutex));
}

NAMED static void request(int pair)
{
    announce(&asked[pair]);
    await(&answered[pair]);
    sleep_ns(200000);
}

NAMED static void serve(int pair)
{
    await(&asked[pair]);
    sleep_ns(1000000);
    announce(&answered[pair]);
}

static void *talk(void *arg)
{
    int pair = (int)(intptr_t)arg / 2;
    for (long i = 0; i < rounds; i++) {
        if ((intptr_t)arg % 2)
            serve(pair);
        else
            request(pair);
    }
    thread_done();
    return NULL;
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "rows";
    rounds = number(argc, argv, 2, 100);
    void *(*body)(void *) = update;
    wait_for_row = wait_for_own;
    let_go = wake_next;
    if (!strcmp(mode, "herd")) {
        wait_for_row = wait_for_all;
        let_go = wake_all;
    } else if (!strcmp(mode, "tasks")) {
        body = work;
        tasks = 2;
        to_do = rounds * THREADS;
    } else if (!strcmp(mode, "service")) {
        body = talk;
    }
    for (int i = 0; i < THREADS / 2; i++) {
        asked[i] = (struct event){ PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0 };
        answered[i] = asked[i];
    }
    ready_and_go();
    pthread_t threads[THREADS];
    for (intptr_t i = 0; i < THREADS; i++) {
        // Of those who update, only the first holds the row for long.
        void *arg = (void *)(body == update ? (intptr_t)(i == 0) : i);
        MUST(pthread_create(&threads[i], NULL, body, arg));
    }
    for (int i = 0; i < THREADS; i++)
        MUST(pthread_join(threads[i], NULL));
    fact("waits", waits);
    fact("waited_ns", waited_ns);
    fact("long_ns", waited_by[1]);
    fact("short_ns", waited_by[0]);
    return finish("conditions");
}
