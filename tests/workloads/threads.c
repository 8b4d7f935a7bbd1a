// threads EARLY LATE ITERATIONS: EARLY threads exist before "go" (before the observer comes) and LATE ones are created,
// used and joined one after the other afterwards, so that they come and go during the observation. Late threads are
// named `late`.
#include "truth.h"

#define MAX_EARLY 64

pthread_mutex_t early_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t late_lock = PTHREAD_MUTEX_INITIALIZER;

static struct lock_truth *early_truth, *late_truth;
static pthread_barrier_t all_there, go;
static long iterations;

NAMED static void work(struct lock_truth *truth)
{
    for (long i = 0; i < iterations; i++) {
        struct section section;
        ACQUIRE(truth, &section);
        RELEASE(truth, &section);
    }
}

static void *early(void *arg)
{
    pthread_barrier_wait(&all_there);
    pthread_barrier_wait(&go);
    work(early_truth);
    thread_done();
    return arg;
}

static void *late(void *arg)
{
    MUST(pthread_setname_np(pthread_self(), "late"));
    work(late_truth);
    thread_done();
    return arg;
}

int main(int argc, char **argv)
{
    long early_count = number(argc, argv, 1, 4), late_count = number(argc, argv, 2, 20);
    iterations = number(argc, argv, 3, 200);
    if (early_count < 1 || early_count > MAX_EARLY)
        die("threads", EINVAL);
    early_truth = truth_of("early_lock", &early_lock);
    late_truth = truth_of("late_lock", &late_lock);
    MUST(pthread_barrier_init(&all_there, NULL, (unsigned)early_count + 1));
    MUST(pthread_barrier_init(&go, NULL, (unsigned)early_count + 1));
    pthread_t thread[MAX_EARLY], short_lived;
    for (long i = 0; i < early_count; i++)
        MUST(pthread_create(&thread[i], NULL, early, NULL));
    pthread_barrier_wait(&all_there);
    ready_and_go();
    pthread_barrier_wait(&go);
    for (long i = 0; i < late_count; i++) {
        MUST(pthread_create(&short_lived, NULL, late, NULL));
        MUST(pthread_join(short_lived, NULL));
    }
    for (long i = 0; i < early_count; i++)
        MUST(pthread_join(thread[i], NULL));
    return finish("threads");
}
