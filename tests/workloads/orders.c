// orders ROUNDS: locks taken in contradicting orders that never meet, since the threads work one after the other.
// `forth` takes `lock_a`, then `lock_b`; `back` takes `lock_b`, then `lock_a`: they could deadlock. One thread alone takes
// `own_a` and `own_b` in both orders: it could not. `tries` holds `lock_b` and only tries to get `lock_c`, which `forth`
// takes before `lock_b`: it could not, either.
#include "truth.h"

pthread_mutex_t lock_a = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t lock_b = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t lock_c = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t own_a = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t own_b = PTHREAD_MUTEX_INITIALIZER;

static struct lock_truth *a, *b, *c, *own_1, *own_2;
static long rounds;

static void nested(struct lock_truth *outer, struct lock_truth *inner)
{
    struct section outer_section, inner_section;
    ACQUIRE(outer, &outer_section);
    ACQUIRE(inner, &inner_section);
    RELEASE(inner, &inner_section);
    RELEASE(outer, &outer_section);
}

NAMED static void *forth(void *arg)
{
    for (long i = 0; i < rounds; i++) {
        nested(a, b);
        nested(c, b);
    }
    thread_done();
    return arg;
}

NAMED static void *back(void *arg)
{
    for (long i = 0; i < rounds; i++)
        nested(b, a);
    thread_done();
    return arg;
}

NAMED static void *both_ways(void *arg)
{
    for (long i = 0; i < rounds; i++) {
        nested(own_1, own_2);
        nested(own_2, own_1);
    }
    thread_done();
    return arg;
}

NAMED static void *tries(void *arg)
{
    struct section outer_section, inner_section;
    for (long i = 0; i < rounds; i++) {
        ACQUIRE(b, &outer_section);
        ACQUIRE_BY(c, &inner_section, pthread_mutex_trylock(&lock_c));
        RELEASE(c, &inner_section);
        RELEASE(b, &outer_section);
    }
    thread_done();
    return arg;
}

int main(int argc, char **argv)
{
    rounds = number(argc, argv, 1, 10);
    a = truth_of("lock_a", &lock_a);
    b = truth_of("lock_b", &lock_b);
    c = truth_of("lock_c", &lock_c);
    own_1 = truth_of("own_a", &own_a);
    own_2 = truth_of("own_b", &own_b);
    ready_and_go();
    void *(*const all[])(void *) = {forth, back, both_ways, tries};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        pthread_t thread;
        MUST(pthread_create(&thread, NULL, all[i], NULL));
        MUST(pthread_join(thread, NULL));
    }
    return finish("orders");
}
