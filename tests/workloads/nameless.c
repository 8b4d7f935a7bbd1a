// nameless ROUNDS: `in_two_ways` holds `the_lock` for 3 ms and gives it back at two places by turns, `in_one_way` holds it for 1 ms.
// Says where these functions begin in the file, for copies of it that have no symbols.
#include "truth.h"
#include <limits.h>

extern const char __ehdr_start[];

pthread_mutex_t the_lock = PTHREAD_MUTEX_INITIALIZER;

static struct lock_truth *truth;
static long rounds;

NAMED static long in_two_ways(long round)
{
    struct section section;
    ACQUIRE(truth, &section);
    sleep_ns(3000000);
    if (round % 2 == 0) {
        RELEASE(truth, &section);
        return round;
    }
    RELEASE(truth, &section);
    return -round;
}

NAMED static void in_one_way(void)
{
    struct section section;
    ACQUIRE(truth, &section);
    sleep_ns(1000000);
    RELEASE(truth, &section);
}

static void *first(void *arg)
{
    long sum = 0;
    for (long i = 0; i < rounds; i++) {
        sum += in_two_ways(i);
        sleep_ns(500000);
    }
    thread_done();
    return sum == LONG_MIN ? NULL : arg;
}

static void *second(void *arg)
{
    for (long i = 0; i < rounds; i++) {
        in_one_way();
        sleep_ns(500000);
    }
    thread_done();
    return arg;
}

int main(int argc, char **argv)
{
    rounds = number(argc, argv, 1, 300);
    truth = truth_of("the_lock", &the_lock);
    fact("in_two_ways", (uint64_t)((const char *)in_two_ways - __ehdr_start));
    fact("in_one_way", (uint64_t)((const char *)in_one_way - __ehdr_start));
    ready_and_go();
    pthread_t threads[2];
    MUST(pthread_create(&threads[0], NULL, first, NULL));
    MUST(pthread_create(&threads[1], NULL, second, NULL));
    for (int i = 0; i < 2; i++)
        MUST(pthread_join(threads[i], NULL));
    return finish("nameless");
}
