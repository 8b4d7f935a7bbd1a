// counter THREADS LOCKS ITERATIONS [lock|try]: every thread takes `cache_lock` and one of `table[0..LOCKS]` in each
// iteration: acquisitions are exact. With `try` each lock is tried first: the number of failed tries is exact too, and
// bounds contention, since only a failed try is followed by a lock call.
#include "truth.h"

#define TABLE 16

pthread_mutex_t cache_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t table[TABLE];

static struct lock_truth *cache_truth, *table_truth[TABLE];
static char table_names[TABLE][24];
static long locks, iterations;
static bool try_first;
static volatile uint64_t work_done;

NAMED static void update(struct lock_truth *truth)
{
    struct section section;
    if (try_first) {
        section.called = now_ns();
        int error = pthread_mutex_trylock(truth->object);
        if (error == 0) {
            acquired(truth, &section);
        } else {
            MUST_BE(EBUSY, error);
            failed(truth, section.called);
            truth->try_failures++;
            ACQUIRE(truth, &section);
        }
    } else {
        ACQUIRE(truth, &section);
    }
    for (int i = 0; i < 20; i++)
        work_done = work_done + 1;
    RELEASE(truth, &section);
}

static void *worker(void *arg)
{
    long number = (long)arg;
    for (long i = 0; i < iterations; i++) {
        update(cache_truth);
        update(table_truth[(i + number) % locks]);
    }
    thread_done();
    return NULL;
}

int main(int argc, char **argv)
{
    long threads = number(argc, argv, 1, 4);
    locks = number(argc, argv, 2, 2);
    iterations = number(argc, argv, 3, 1000);
    try_first = argc > 4 && strcmp(argv[4], "try") == 0;
    if (threads < 1 || threads > 256 || locks < 1 || locks > TABLE)
        die("counter", EINVAL);
    cache_truth = truth_of("cache_lock", &cache_lock);
    for (long i = 0; i < locks; i++) {
        MUST(pthread_mutex_init(&table[i], NULL));
        snprintf(table_names[i], sizeof table_names[i], "table[%ld]", (long)i);
        table_truth[i] = truth_of(table_names[i], &table[i]);
    }
    ready_and_go();
    pthread_t thread[256];
    for (long i = 0; i < threads; i++)
        MUST(pthread_create(&thread[i], NULL, worker, (void *)i));
    for (long i = 0; i < threads; i++)
        MUST(pthread_join(thread[i], NULL));
    return finish("counter");
}
