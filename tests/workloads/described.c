// described ROUNDS FREE: locks of the program's own. Each is taken FREE times while it is free, and ROUNDS times it is held until another
// thread waits for it. The read-write lock is held by either kind, and waited for by the other one.
#include "truth.h"

#include "own_locks.h"

// How long a lock is held once somebody waits, at least.
#define HELD_NS 1000000

static struct latch own_latch = {.rank = 7, .name = "orders"};
static struct pool pool = {.latch = &own_latch};
static struct spin own_spin = {.number = 1};
static struct table own_table;
static struct lock_truth *latch_truth, *spin_truth, *table_truth;
static uint64_t shared;

enum what { LATCH, SPIN, READ, WRITE };

static struct lock_truth *of(enum what what)
{
    return what == LATCH ? latch_truth : what == SPIN ? spin_truth : table_truth;
}

static bool is_waited_for(enum what what)
{
    return what == LATCH ? own_latch.waiting : what == SPIN ? own_spin.waiting : own_table.waiting;
}

NAMED static void get(enum what what)
{
    switch (what) {
    case LATCH:
        latch_get(&pool);
        break;
    case SPIN:
        spin_get(0, &own_spin);
        break;
    default:
        table_get(&own_table, what == READ ? SHARED : EXCLUSIVE);
        shared += what == READ;
    }
    of(what)->acquisitions++;
    my_acquisitions++;
}

NAMED static void put(enum what what)
{
    switch (what) {
    case LATCH:
        latch_put(&pool);
        break;
    case SPIN:
        spin_put(0, &own_spin);
        break;
    default:
        table_put(&own_table);
    }
}

NAMED static void *want(void *what)
{
    get(*(enum what *)what);
    put(*(enum what *)what);
    thread_done();
    return NULL;
}

// Tries to get the latch while the main thread holds it.
NAMED static void *try_in_vain(void *times)
{
    for (long i = 0; i < *(long *)times; i++) {
        if (latch_try(&pool))
            die("latch_try", EEXIST);
        latch_truth->try_failures++;
    }
    thread_done();
    return NULL;
}

// Holds one until a thread waits for the other.
NAMED static void contend(enum what held, enum what wanted, long rounds)
{
    for (long i = 0; i < rounds; i++) {
        pthread_t waiter;
        get(held);
        MUST(pthread_create(&waiter, NULL, want, &wanted));
        while (!is_waited_for(wanted))
            sleep_ns(100000);
        uint64_t from = now_ns();
        sleep_ns(HELD_NS);
        of(held)->wait_min_ns += now_ns() - from;
        put(held);
        MUST(pthread_join(waiter, NULL));
        of(held)->contended++;
    }
}

int main(int argc, char **argv)
{
    long rounds = number(argc, argv, 1, 20), free = number(argc, argv, 2, 1000);
    latch_truth = truth_of("own_latch", &own_latch);
    spin_truth = truth_of("own_spin", &own_spin);
    table_truth = truth_of("own_table", &own_table);
    ready_and_go();
    for (enum what what = LATCH; what <= WRITE; what++)
        for (long i = 0; i < free; i++) {
            get(what);
            put(what);
        }
    for (long i = 0; i < free; i++) {
        if (!latch_try(&pool))
            die("latch_try", EBUSY);
        latch_truth->acquisitions++;
        my_acquisitions++;
        latch_put(&pool);
    }
    pthread_t trier;
    get(LATCH);
    MUST(pthread_create(&trier, NULL, try_in_vain, &free));
    MUST(pthread_join(trier, NULL));
    put(LATCH);
    contend(LATCH, LATCH, rounds);
    contend(SPIN, SPIN, rounds);
    contend(WRITE, READ, rounds);
    contend(READ, WRITE, rounds);
    fact("shared", shared);
    thread_done();
    return finish("described");
}
