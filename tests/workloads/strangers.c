// strangers LOCKS ROUNDS: mutexes that another thread unlocks. A thread locks LOCKS mutexes, each given back by the main thread, then
// own_lock ROUNDS times, then handed_lock ROUNDS times, each given back by the main thread, too.
// Facts: given_back (of the LOCKS mutexes).
#include "truth.h"

pthread_mutex_t own_lock = PTHREAD_MUTEX_INITIALIZER, handed_lock = PTHREAD_MUTEX_INITIALIZER;

static struct lock_truth *own, *handed;
static pthread_mutex_t *locks;
static long count, rounds;
static pthread_barrier_t turn;

NAMED static void take(pthread_mutex_t *mutex)
{
    MUST(pthread_mutex_lock(mutex));
}

static void *taker(void *arg)
{
    struct section section;
    for (long i = 0; i < count; i++)
        take(&locks[i]);
    pthread_barrier_wait(&turn);
    for (long i = 0; i < rounds; i++) {
        ACQUIRE(own, &section);
        RELEASE(own, &section);
    }
    for (long i = 0; i < rounds; i++) {
        ACQUIRE(handed, &section);
        pthread_barrier_wait(&turn);
        pthread_barrier_wait(&turn);
    }
    thread_done();
    return arg;
}

int main(int argc, char **argv)
{
    count = number(argc, argv, 1, 40);
    rounds = number(argc, argv, 2, 100);
    locks = calloc((size_t)count, sizeof *locks);
    own = truth_of("own_lock", &own_lock);
    handed = truth_of("handed_lock", &handed_lock);
    for (long i = 0; i < count; i++)
        MUST(pthread_mutex_init(&locks[i], NULL));
    MUST(pthread_barrier_init(&turn, NULL, 2));
    ready_and_go();
    pthread_t thread;
    MUST(pthread_create(&thread, NULL, taker, NULL));
    pthread_barrier_wait(&turn);
    for (long i = 0; i < count; i++)
        MUST(pthread_mutex_unlock(&locks[i]));
    for (long i = 0; i < rounds; i++) {
        pthread_barrier_wait(&turn);
        MUST(pthread_mutex_unlock(&handed_lock));
        pthread_barrier_wait(&turn);
    }
    MUST(pthread_join(thread, NULL));
    fact("given_back", (uint64_t)count);
    return finish("strangers");
}
