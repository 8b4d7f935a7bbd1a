// A thread of low priority that loses its CPU, to threads that compute, while it holds a lock that others want.
#include "program.h"

#include <sys/resource.h>
#include <sys/syscall.h>

static pthread_mutex_t metrics_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t cache_lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t metrics, cached;

static LARGE void collect_metrics(void)
{
    pthread_mutex_lock(&metrics_lock); // culprit
    metrics++;
    work(cured ? 100 : 4000000);
    pthread_mutex_unlock(&metrics_lock); // culprit
    if (cured)
        work(3999900);
}

static LARGE void count_request(void)
{
    pthread_mutex_lock(&metrics_lock);
    metrics++;
    pthread_mutex_unlock(&metrics_lock);
}

static LARGE void look_up(void)
{
    pthread_mutex_lock(&cache_lock);
    cached++;
    pthread_mutex_unlock(&cache_lock);
}

static void *collector(void *arg)
{
    setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), 19);
    for (;;) {
        collect_metrics();
        sleep_us(20000);
    }
    return NULL;
}

static void *computer(void *arg)
{
    for (;;)
        work(1000000);
    return NULL;
}

static void *worker(void *arg)
{
    for (;;) {
        work(10000);
        look_up();
        count_request();
        did((long)arg);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    start(argc, argv);
    begin_all(computer, 10, sysconf(_SC_NPROCESSORS_ONLN));
    begin(collector, NULL);
    begin_all(worker, 0, 2);
    return answer();
}
