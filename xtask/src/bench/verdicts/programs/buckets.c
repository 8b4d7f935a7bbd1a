// A hash table with a lock for each bucket, and a key that half of all operations ask for, in a bucket with a long chain.
#include "program.h"

#define BUCKETS 256
#define HOT 37

static struct bucket {
    pthread_mutex_t lock;
    uint64_t size;
} table[BUCKETS];

static pthread_mutex_t size_lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t table_size;

static LARGE void add_to_bucket(struct bucket *bucket, long chain)
{
    pthread_mutex_lock(&bucket->lock); // culprit
    bucket->size++;
    work(chain);
    pthread_mutex_unlock(&bucket->lock); // culprit
}

static LARGE void resize(void)
{
    pthread_mutex_lock(&size_lock);
    table_size++;
    pthread_mutex_unlock(&size_lock);
}

static void *worker(void *arg)
{
    uint64_t state = (uint64_t)arg + 88172645463325252u;
    for (;;) {
        uint64_t key = pseudo_random(&state);
        work(200);
        if (key & 1)
            add_to_bucket(&table[cured ? key / 2 % BUCKETS : HOT], 4000);
        else
            add_to_bucket(&table[key / 2 % BUCKETS], 200);
        if (key % 16 == 0)
            resize();
        did((long)arg);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    start(argc, argv);
    for (int i = 0; i < BUCKETS; i++)
        pthread_mutex_init(&table[i].lock, NULL);
    tell_lock(&table[HOT].lock, sizeof table[HOT].lock);
    begin_all(worker, 0, 4);
    return answer();
}
