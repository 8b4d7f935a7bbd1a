// A library that keeps its locks where only debug information names them; what of it is not loaded will be damaged.
#include <pthread.h>
#include <unistd.h>

struct shard {
    long count;
    pthread_mutex_t lock;
};
static struct shard shards[2] = {{0, PTHREAD_MUTEX_INITIALIZER}, {0, PTHREAD_MUTEX_INITIALIZER}};

static inline void hold(struct shard *shard) {
    pthread_mutex_lock(&shard->lock);
    shard->count++;
    usleep(50);
    pthread_mutex_unlock(&shard->lock);
}

int take(void) {
    hold(&shards[0]);
    hold(&shards[1]);
    return (int)shards[0].count;
}
