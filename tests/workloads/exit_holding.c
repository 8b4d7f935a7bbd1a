// exit_holding: a thread takes `orphan_lock` and exits without releasing it; another then times out waiting for it.
// At the end the main thread exits the process while it holds `last_lock`.
#include "truth.h"

pthread_mutex_t orphan_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t last_lock = PTHREAD_MUTEX_INITIALIZER;

static struct lock_truth *orphan, *last;

NAMED static void *take_to_the_grave(void *arg)
{
    struct section section;
    ACQUIRE(orphan, &section);
    thread_done();
    return arg;
}

NAMED static void wait_for_the_dead(void)
{
    struct timespec deadline;
    clock_gettime(CLOCK_REALTIME, &deadline);
    deadline.tv_sec++;
    uint64_t begin = now_ns();
    FAIL_BY(orphan, timeouts, ETIMEDOUT, pthread_mutex_timedlock(&orphan_lock, &deadline));
    fact("waited_ns", now_ns() - begin);
}

int main(void)
{
    orphan = truth_of("orphan_lock", &orphan_lock);
    last = truth_of("last_lock", &last_lock);
    ready_and_go();
    pthread_t thread;
    MUST(pthread_create(&thread, NULL, take_to_the_grave, NULL));
    MUST(pthread_join(thread, NULL));
    wait_for_the_dead();
    struct section section;
    ACQUIRE(last, &section);
    thread_done();
    return finish("exit_holding");
}
