// Consumers that wait for a slow producer: no lock holds them back.
#include "program.h"

#define SIZE 256

static pthread_mutex_t queue_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t stats_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t not_empty = PTHREAD_COND_INITIALIZER, not_full = PTHREAD_COND_INITIALIZER;
static long queued, stats;

static LARGE void take_item(void)
{
    pthread_mutex_lock(&queue_lock);
    while (queued == 0)
        pthread_cond_wait(&not_empty, &queue_lock);
    queued--;
    pthread_cond_signal(&not_full);
    pthread_mutex_unlock(&queue_lock);
}

static LARGE void put_item(void)
{
    work(cured ? 1000 : 100000);
    pthread_mutex_lock(&queue_lock);
    while (queued == SIZE)
        pthread_cond_wait(&not_full, &queue_lock);
    queued++;
    pthread_cond_signal(&not_empty);
    pthread_mutex_unlock(&queue_lock);
}

static LARGE void count_item(void)
{
    pthread_mutex_lock(&stats_lock);
    stats++;
    pthread_mutex_unlock(&stats_lock);
}

static void *producer(void *arg)
{
    for (;;)
        put_item();
    return NULL;
}

static void *consumer(void *arg)
{
    for (;;) {
        take_item();
        work(5000);
        count_item();
        did((long)arg);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    start(argc, argv);
    begin(producer, NULL);
    begin_all(consumer, 0, 3);
    return answer();
}
