// broadcast WHAT THREADS SECONDS: a thread gives out work each two milliseconds, and wakes all of the others for it.
//   herd  one piece of work for all: one thread finds it, the others look in vain and go to sleep again
//   work  look-alike: a piece of work for each of them, which each does outside of the lock
//
// Facts: broadcasts, woken (returns from the condition), in_vain (of these, those that found nothing).
#include "truth.h"

#define STEP_NS 2000000

pthread_mutex_t jobs_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t jobs_there = PTHREAD_COND_INITIALIZER;

static struct lock_truth *truth;
static long jobs, sleepers, rounds;
static bool over, herd;
static _Atomic uint64_t woken, in_vain;

// Whether there is something to do for a thread that had a part in so many rounds.
static bool is_there(long had)
{
    return over || (herd ? jobs > 0 : rounds > had);
}

NAMED static bool take_job(long had)
{
    struct section section;
    ACQUIRE(truth, &section);
    while (!is_there(had)) {
        sleepers++;
        COND_WAIT(truth, &section, &jobs_there);
        sleepers--;
        woken++;
        in_vain += !is_there(had);
    }
    bool goes_on = !over;
    jobs--;
    RELEASE(truth, &section);
    return goes_on;
}

static void *worker(void *arg)
{
    for (long had = 0; take_job(had); had++) {
        for (uint64_t until = own_cpu_ns() + 100000; own_cpu_ns() < until;)
            ;
    }
    thread_done();
    return arg;
}

// How many sleep now.
static long asleep(void)
{
    struct section section;
    ACQUIRE(truth, &section);
    long count = sleepers;
    RELEASE(truth, &section);
    return count;
}

NAMED static void give_out(bool end)
{
    struct section section;
    ACQUIRE(truth, &section);
    jobs = 1;
    rounds++;
    over = end;
    RELEASE(truth, &section);
    MUST(pthread_cond_broadcast(&jobs_there));
}

int main(int argc, char **argv)
{
    herd = !strcmp(argc > 1 ? argv[1] : "herd", "herd");
    long count = number(argc, argv, 2, 8);
    uint64_t broadcasts = 0;
    pthread_t threads[64];
    if (count < 1 || count > 64)
        die("broadcast", EINVAL);
    truth = truth_of("jobs_lock", &jobs_lock);
    ready_and_go();
    uint64_t end_ns = now_ns() + (uint64_t)number(argc, argv, 3, 2) * 1000000000;
    for (long i = 0; i < count; i++)
        MUST(pthread_create(&threads[i], NULL, worker, NULL));
    for (; now_ns() < end_ns; broadcasts++) {
        sleep_ns(STEP_NS);
        while (asleep() < count && now_ns() < end_ns)
            sleep_ns(STEP_NS / 10);
        give_out(false);
    }
    give_out(true);
    for (long i = 0; i < count; i++)
        MUST(pthread_join(threads[i], NULL));
    thread_done();
    fact("broadcasts", broadcasts);
    fact("woken", woken);
    fact("in_vain", in_vain);
    return finish("broadcast");
}
