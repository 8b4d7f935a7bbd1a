// A mutex with priority inheritance, held while its thread sleeps.
#include "program.h"

static pthread_mutex_t device_lock, queue_lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t samples, queued;

static LARGE void calibrate_device(void)
{
    pthread_mutex_lock(&device_lock); // culprit
    samples = 0;
    if (!cured)
        sleep_us(2000);
    pthread_mutex_unlock(&device_lock); // culprit
}

static LARGE void read_device(void)
{
    pthread_mutex_lock(&device_lock);
    samples++;
    work(500);
    pthread_mutex_unlock(&device_lock);
}

static LARGE void queue_sample(void)
{
    pthread_mutex_lock(&queue_lock);
    queued++;
    pthread_mutex_unlock(&queue_lock);
}

static void *worker(void *arg)
{
    for (;;) {
        work(15000);
        queue_sample();
        read_device();
        did((long)arg);
    }
    return NULL;
}

static void *calibrator(void *arg)
{
    for (;;) {
        calibrate_device();
        sleep_us(500);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    start(argc, argv);
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT);
    if (pthread_mutex_init(&device_lock, &attributes))
        die("pthread_mutex_init");
    begin(calibrator, NULL);
    begin_all(worker, 0, 3);
    return answer();
}
