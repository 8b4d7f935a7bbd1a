// callers ROUNDS [jump]: `db_lock` takes `db_mutex` for all: for `vacuum`, which holds it for 20 ms a round, and for `get_row`, which holds it
// for 1 ms, while `put_row` waits for it. With `jump` it is given back by a function that ends with it, and so do its callers: compilers
// make jumps of such calls, and none of them is on the stack then.
#include "truth.h"

pthread_mutex_t db_mutex = PTHREAD_MUTEX_INITIALIZER;

static struct lock_truth *truth;
static pthread_barrier_t held, round_over;
static _Atomic pid_t victim_tid;
static long rounds;
static bool jumps;

NAMED static void db_lock(struct section *section)
{
    ACQUIRE(truth, section);
}

NAMED static void db_unlock(struct section *section)
{
    RELEASE(truth, section);
}

NAMED static void db_unlock_last(struct section *section)
{
    truth->hold_ns += now_ns() - section->acquired;
    truth->span_ns += now_ns() - section->called;
    pthread_mutex_unlock(&db_mutex);
}

static void hold_while_waited_for(uint64_t ns)
{
    pthread_barrier_wait(&held);
    await_blocked(&victim_tid, &db_mutex, sizeof db_mutex);
    uint64_t begin = now_ns();
    sleep_ns(ns);
    truth->wait_min_ns += now_ns() - begin;
}

NAMED static void vacuum(struct section *section)
{
    db_lock(section);
    hold_while_waited_for(20000000);
    if (jumps)
        db_unlock_last(section);
    else
        db_unlock(section);
}

NAMED static void get_row(struct section *section)
{
    db_lock(section);
    hold_while_waited_for(1000000);
    if (jumps)
        db_unlock_last(section);
    else
        db_unlock(section);
}

NAMED static void put_row(struct section *section)
{
    db_lock(section);
    truth->contended++;
    db_unlock(section);
}

static void *victim(void *arg)
{
    victim_tid = my_tid();
    for (long i = 0; i < 2 * rounds; i++) {
        struct section section;
        pthread_barrier_wait(&held);
        put_row(&section);
        pthread_barrier_wait(&round_over);
    }
    thread_done();
    return arg;
}

int main(int argc, char **argv)
{
    rounds = number(argc, argv, 1, 10);
    jumps = argc > 2 && !strcmp(argv[2], "jump");
    truth = truth_of("db_mutex", &db_mutex);
    MUST(pthread_barrier_init(&held, NULL, 2));
    MUST(pthread_barrier_init(&round_over, NULL, 2));
    ready_and_go();
    pthread_t waiting;
    MUST(pthread_create(&waiting, NULL, victim, NULL));
    for (long i = 0; i < rounds; i++) {
        struct section section;
        vacuum(&section);
        pthread_barrier_wait(&round_over);
        get_row(&section);
        pthread_barrier_wait(&round_over);
    }
    MUST(pthread_join(waiting, NULL));
    thread_done();
    return finish("callers");
}
