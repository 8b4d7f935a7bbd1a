// once THREADS ROUNDS: in each of ROUNDS (64 at most) rounds all threads want an initialiser of its own at the same moment. Who runs it
// ends only when all others wait, so that those are THREADS - 1 for certain, also those that had found it not yet begun.
#include "truth.h"

static pthread_once_t controls[MAX_LOCKS];
static _Atomic pid_t worker_tid[MAX_THREADS];
static _Atomic long arrived, round_now;
static long threads, rounds;

static void initialise(void)
{
    for (long i = 0; i < threads; i++)
        if (worker_tid[i] != my_tid())
            await_blocked(&worker_tid[i], &controls[round_now], sizeof controls[0]);
}

// Spins, so that all go on at the same moment.
static void together(long round)
{
    if (++arrived == threads * (round + 1))
        round_now = round;
    while (round_now != round)
        ;
}

static void *worker(void *tid)
{
    *(_Atomic pid_t *)tid = my_tid();
    for (long i = 0; i < rounds; i++) {
        together(i);
        pthread_once(&controls[i], initialise);
        my_acquisitions++;
    }
    thread_done();
    return NULL;
}

int main(int argc, char **argv)
{
    threads = number(argc, argv, 1, 3);
    rounds = number(argc, argv, 2, 50);
    if (threads > MAX_THREADS || rounds > MAX_LOCKS)
        die("THREADS ROUNDS", EINVAL);
    round_now = -1;
    for (long i = 0; i < rounds; i++) {
        controls[i] = (pthread_once_t)PTHREAD_ONCE_INIT;
        struct lock_truth *truth = truth_of(NULL, &controls[i]);
        truth->acquisitions = (uint64_t)threads;
        truth->contended = (uint64_t)threads - 1;
    }
    ready_and_go();
    pthread_t thread[MAX_THREADS];
    for (long i = 0; i < threads; i++)
        MUST(pthread_create(&thread[i], NULL, worker, &worker_tid[i]));
    for (long i = 0; i < threads; i++)
        MUST(pthread_join(thread[i], NULL));
    thread_done();
    return finish("once");
}
