// shards MS: a table of 400 shards, each with a lock of its own. Six threads update one after the other, three of them each at a time, and
// sleep meanwhile: no lock is waited for longer than others. Facts: waited_ns, by the threads' own clocks.
#include "truth.h"

#define SHARDS 400
#define THREADS 6
#define AT_A_TIME 3

struct shard {
    pthread_mutex_t lock;
    long updates[8];
};

struct shard shards[SHARDS];

static _Atomic unsigned long turns;
static _Atomic uint64_t waited_ns;
static uint64_t end_ns;

NAMED static void update(struct shard *shard)
{
    uint64_t called = now_ns();
    pthread_mutex_lock(&shard->lock);
    waited_ns += now_ns() - called;
    shard->updates[0]++;
    sleep_ns(300000);
    pthread_mutex_unlock(&shard->lock);
}

static void *work(void *arg)
{
    while (now_ns() < end_ns)
        update(&shards[turns++ / AT_A_TIME % SHARDS]);
    thread_done();
    return arg;
}

int main(int argc, char **argv)
{
    uint64_t duration_ns = (uint64_t)number(argc, argv, 1, 3000) * 1000000;
    pthread_t threads[THREADS];
    for (int i = 0; i < SHARDS; i++)
        pthread_mutex_init(&shards[i].lock, NULL);
    ready_and_go();
    end_ns = now_ns() + duration_ns;
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, work, NULL);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    fact("waited_ns", waited_ns);
    return finish("shards");
}
