// A semaphore of one, used as a lock of the only connection.
#include "program.h"

#include <semaphore.h>

static sem_t connection;
static pthread_mutex_t cache_lock = PTHREAD_MUTEX_INITIALIZER;
static struct service server;
static uint64_t cached, pinged;

static LARGE void run_report(void)
{
    sem_wait(&connection); // culprit
    work(1000);
    if (!cured)
        call_service(&server);
    sem_post(&connection); // culprit
    if (cured)
        call_service(&server);
}

static LARGE void send_ping(void)
{
    sem_wait(&connection);
    pinged++;
    work(300);
    sem_post(&connection);
}

static LARGE void use_cache(void)
{
    pthread_mutex_lock(&cache_lock);
    cached++;
    work(100);
    pthread_mutex_unlock(&cache_lock);
}

static void *worker(void *arg)
{
    for (;;) {
        work(10000);
        use_cache();
        send_ping();
        did((long)arg);
    }
    return NULL;
}

static void *reporter(void *arg)
{
    for (;;) {
        run_report();
        sleep_us(500);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    start(argc, argv);
    sem_init(&connection, 0, 1);
    connect_service(&server, 2000);
    begin(reporter, NULL);
    begin_all(worker, 0, 3);
    return answer();
}
