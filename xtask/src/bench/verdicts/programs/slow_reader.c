// One reader that keeps the lock while it sends what it has read.
#include "program.h"

static pthread_rwlock_t config_lock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_mutex_t stats_lock = PTHREAD_MUTEX_INITIALIZER;
static struct service replica;
static uint64_t version, hits;

static LARGE void export_snapshot(void)
{
    pthread_rwlock_rdlock(&config_lock); // culprit
    work(1000);
    if (!cured)
        call_service(&replica);
    pthread_rwlock_unlock(&config_lock); // culprit
    if (cured)
        call_service(&replica);
}

static LARGE void set_option(void)
{
    pthread_rwlock_wrlock(&config_lock);
    version++;
    work(300);
    pthread_rwlock_unlock(&config_lock);
}

static LARGE void get_option(void)
{
    pthread_rwlock_rdlock(&config_lock);
    work(100);
    pthread_rwlock_unlock(&config_lock);
    pthread_mutex_lock(&stats_lock);
    hits++;
    pthread_mutex_unlock(&stats_lock);
}

static void *exporter(void *arg)
{
    for (;;) {
        export_snapshot();
        sleep_us(500);
    }
    return NULL;
}

static void *worker(void *arg)
{
    for (;;) {
        for (int i = 0; i < 20; i++) {
            work(5000);
            get_option();
        }
        set_option();
        did((long)arg);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    start(argc, argv);
    connect_service(&replica, 3000);
    begin(exporter, NULL);
    begin_all(worker, 0, 3);
    return answer();
}
