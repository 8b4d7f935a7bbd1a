// lockstep WHAT THREADS ROUNDS: threads that meet at `meeting`, a barrier, after each round.
//   step  in each round another thread has a part that is six times as long as those of the others, who wait for it
//   even  look-alike: all parts are equally long, so that nobody waits for long
//   late  look-alike: it is always the same thread that all others wait for
//
// Parts sleep, so that they last as long on a busy machine, too.
#include "truth.h"

#define SHORT_NS 2000000
#define EVEN_NS 20000000

pthread_barrier_t meeting;

static const char *what;
static long count, rounds;

// No function: the place of the call is the caller's.
#define ARRIVE() \
    do { \
        int result = pthread_barrier_wait(&meeting); \
        if (result != 0 && result != PTHREAD_BARRIER_SERIAL_THREAD) \
            die("pthread_barrier_wait", result); \
    } while (0)

NAMED static void part(uint64_t ns)
{
    sleep_ns(ns);
    ARRIVE();
}

static void *member(void *arg)
{
    long own = (long)arg;
    for (long round = 0; round < rounds; round++) {
        long last = strcmp(what, "late") ? round % count : 0;
        part(!strcmp(what, "even") ? EVEN_NS : own == last ? SHORT_NS * 6 : SHORT_NS);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[64];
    what = argc > 1 ? argv[1] : "step";
    count = number(argc, argv, 2, 4);
    rounds = number(argc, argv, 3, 100);
    if (count < 2 || count > 64)
        die("lockstep", EINVAL);
    MUST(pthread_barrier_init(&meeting, NULL, (unsigned)count));
    ready_and_go();
    for (long i = 0; i < count; i++)
        MUST(pthread_create(&threads[i], NULL, member, (void *)i));
    for (long i = 0; i < count; i++)
        MUST(pthread_join(threads[i], NULL));
    fact("rounds", (uint64_t)rounds);
    return finish("lockstep");
}
