// convoy WHAT THREADS SECONDS: threads that want one lock again and again, which the kernel hands to who has waited longest.
//   convoy  each section is a few instructions: nobody can have it again before all others have had it, one wake-up each
//   long    look-alike: the same queue, since a section lasts a millisecond
//   apart   look-alike: the same short sections, a millisecond apart: the queue dissolves
//
// Sections that last sleep, so that they do on a busy machine, too.
#include "truth.h"

#define STEP_NS 1000000

pthread_mutex_t queue_lock;

static struct lock_truth *truth;
static uint64_t end_ns, hold_ns, pause_ns, sum;

NAMED static void pass(void)
{
    struct section section;
    ACQUIRE(truth, &section);
    sum++;
    if (hold_ns > 0)
        sleep_ns(hold_ns);
    RELEASE(truth, &section);
}

static void *passer(void *arg)
{
    while (now_ns() < end_ns) {
        pass();
        if (pause_ns > 0)
            sleep_ns(pause_ns);
    }
    thread_done();
    return arg;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "convoy";
    long count = number(argc, argv, 2, 6);
    pthread_t threads[64];
    if (count < 1 || count > 64)
        die("convoy", EINVAL);
    pthread_mutexattr_t attributes;
    MUST(pthread_mutexattr_init(&attributes));
    MUST(pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT));
    MUST(pthread_mutex_init(&queue_lock, &attributes));
    truth = truth_of("queue_lock", &queue_lock);
    hold_ns = strcmp(what, "long") ? 0 : STEP_NS;
    pause_ns = strcmp(what, "apart") ? 0 : STEP_NS;
    ready_and_go();
    end_ns = now_ns() + (uint64_t)number(argc, argv, 3, 2) * 1000000000;
    for (long i = 0; i < count; i++)
        MUST(pthread_create(&threads[i], NULL, passer, NULL));
    for (long i = 0; i < count; i++)
        MUST(pthread_join(threads[i], NULL));
    fact("sum", sum);
    return finish("convoy");
}
