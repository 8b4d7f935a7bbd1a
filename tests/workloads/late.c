// late PARTIES ROUNDS: at `meeting`, a barrier of PARTIES threads, all but one arrive at once; `latecomer` arrives after all
// others sleep there, and 2 ms later still. Facts: `meeting`, its address; `late_tid`; `arrivals`; `late_ns`, for how long
// all others waited for the latecomer, at least.
#include "truth.h"

#define MAX_PARTIES 16

pthread_barrier_t meeting;

static _Atomic pid_t tids[MAX_PARTIES];
static pthread_barrier_t round_over;
static long parties, rounds;
static uint64_t late_ns;

// No function: the place of the call is the caller's.
#define ARRIVE() \
    do { \
        int result = pthread_barrier_wait(&meeting); \
        if (result != 0 && result != PTHREAD_BARRIER_SERIAL_THREAD) \
            die("pthread_barrier_wait", result); \
    } while (0)

NAMED static void in_time(void)
{
    ARRIVE();
}

NAMED static void latecomer(void)
{
    for (long i = 1; i < parties; i++)
        await_blocked(&tids[i], &meeting, sizeof meeting);
    uint64_t begin = now_ns();
    sleep_ns(2000000);
    late_ns += now_ns() - begin;
    ARRIVE();
}

static void *party(void *arg)
{
    tids[(long)arg] = my_tid();
    for (long i = 0; i < rounds; i++) {
        in_time();
        pthread_barrier_wait(&round_over);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[MAX_PARTIES];
    parties = number(argc, argv, 1, 4);
    rounds = number(argc, argv, 2, 5);
    if (parties < 2 || parties > MAX_PARTIES)
        die("late", EINVAL);
    MUST(pthread_barrier_init(&meeting, NULL, (unsigned)parties));
    MUST(pthread_barrier_init(&round_over, NULL, (unsigned)parties));
    ready_and_go();
    for (long i = 1; i < parties; i++)
        MUST(pthread_create(&threads[i], NULL, party, (void *)i));
    for (long i = 0; i < rounds; i++) {
        latecomer();
        pthread_barrier_wait(&round_over);
    }
    for (long i = 1; i < parties; i++)
        MUST(pthread_join(threads[i], NULL));
    fact("meeting", (uint64_t)(uintptr_t)&meeting);
    fact("late_tid", (uint64_t)my_tid());
    fact("arrivals", (uint64_t)(parties * rounds));
    fact("late_ns", late_ns);
    return finish("late");
}
