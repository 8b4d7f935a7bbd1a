// handover ROUNDS: hand over hand along `chain[0..4]`: the next lock is taken before the last one is released, so that
// locks are not released in the reverse order of their acquisition. Each is held for at least 1 ms a round.
#include "truth.h"

#define LINKS 4

pthread_mutex_t chain[LINKS];

static struct lock_truth *truth[LINKS];
static char names[LINKS][24];

NAMED static void walk(void)
{
    struct section section[LINKS];
    ACQUIRE(truth[0], &section[0]);
    for (int i = 1; i < LINKS; i++) {
        sleep_ns(500000);
        ACQUIRE(truth[i], &section[i]);
        sleep_ns(500000);
        RELEASE(truth[i - 1], &section[i - 1]);
    }
    sleep_ns(500000);
    RELEASE(truth[LINKS - 1], &section[LINKS - 1]);
}

int main(int argc, char **argv)
{
    long rounds = number(argc, argv, 1, 20);
    for (int i = 0; i < LINKS; i++) {
        MUST(pthread_mutex_init(&chain[i], NULL));
        snprintf(names[i], sizeof names[i], "chain[%d]", (int)i);
        truth[i] = truth_of(names[i], &chain[i]);
    }
    ready_and_go();
    uint64_t begin = now_ns();
    for (long i = 0; i < rounds; i++)
        walk();
    thread_done();
    fact("union_max_ns", now_ns() - begin);
    fact("union_ns", (uint64_t)rounds * (2 * LINKS - 1) * 500000);
    return finish("handover");
}
