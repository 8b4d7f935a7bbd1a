// Two kinds of threads that take two locks in opposite orders, once they are told to: until then one of them takes but one.
#include "program.h"

static pthread_mutex_t orders_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t stock_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t stats_lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t orders, stats;

static LARGE void place_order(void)
{
    pthread_mutex_lock(&orders_lock);
    orders++;
    work(1000);
    pthread_mutex_lock(&stock_lock); // culprit
    work(1000);
    pthread_mutex_unlock(&stock_lock);
    pthread_mutex_unlock(&orders_lock);
}

static LARGE void cancel_order(void)
{
    pthread_mutex_lock(&stock_lock);
    work(1000);
    pthread_mutex_lock(&orders_lock); // culprit
    orders--;
    pthread_mutex_unlock(&orders_lock);
    pthread_mutex_unlock(&stock_lock);
}

static LARGE void count(void)
{
    pthread_mutex_lock(&stats_lock);
    stats++;
    pthread_mutex_unlock(&stats_lock);
}

static void *seller(void *arg)
{
    for (;;) {
        place_order();
        work(5000);
        count();
        did((long)arg);
    }
    return NULL;
}

static void *support(void *arg)
{
    for (;;) {
        if (is_told() && !cured)
            cancel_order();
        work(5000);
        count();
        if (!is_told())
            did((long)arg);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    start(argc, argv);
    begin_all(seller, 0, 2);
    begin_all(support, 2, 1);
    return answer();
}
