// rounds FAST SLOW_MS MS: FAST threads and a slow one meet at `meeting` round after round for MS milliseconds; the slow one takes SLOW_MS
// for its part of a round. Facts: waited_ns (of all in the barrier), lasted_ns.
#include "truth.h"

pthread_barrier_t meeting;

static uint64_t slow_ns, work_ns;
static _Atomic uint64_t waited_ns;
static _Atomic bool over;

// In the function that uses it, so that the call is there. Everybody has to leave in the same round.
#define MEET()                            \
    do {                                  \
        uint64_t from = now_ns();         \
        pthread_barrier_wait(&meeting);   \
        waited_ns += now_ns() - from;     \
    } while (0)

NAMED static void *fast_part(void *arg)
{
    for (;;) {
        MEET();
        if (over)
            return arg;
        sleep_ns(100000);
    }
}

NAMED static void *slow_part(void *arg)
{
    uint64_t begin = now_ns();
    do {
        sleep_ns(slow_ns);
        if (now_ns() - begin >= work_ns)
            over = true;
        MEET();
    } while (!over);
    return arg;
}

int main(int argc, char **argv)
{
    long fast = number(argc, argv, 1, 4);
    slow_ns = (uint64_t)number(argc, argv, 2, 20) * 1000000;
    work_ns = (uint64_t)number(argc, argv, 3, 2000) * 1000000;
    pthread_t threads[64];
    if (fast > 63)
        die("too many threads", E2BIG);
    MUST(pthread_barrier_init(&meeting, NULL, (unsigned)fast + 1));
    ready_and_go();
    uint64_t begin = now_ns();
    for (long i = 0; i <= fast; i++)
        MUST(pthread_create(&threads[i], NULL, i < fast ? fast_part : slow_part, NULL));
    for (long i = 0; i <= fast; i++)
        MUST(pthread_join(threads[i], NULL));
    fact("waited_ns", waited_ns);
    fact("lasted_ns", now_ns() - begin);
    return finish("rounds");
}
