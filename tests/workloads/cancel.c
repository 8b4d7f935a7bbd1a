// cancel THREADS: threads are cancelled while they wait on a condition variable. The unwinder must find its way from
// pthread_cond_wait to the clean-up handler, which releases `guard_lock`: a return address that an observer has replaced
// would stop it, and kill the program.
#include "truth.h"

#define MAX_CANCELLED 64

pthread_mutex_t guard_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t never = PTHREAD_COND_INITIALIZER;

static struct lock_truth *truth;
static _Atomic pid_t tid[MAX_CANCELLED];
static _Atomic uint64_t cleaned_up;

static void release(void *section)
{
    truth->acquisitions++;
    my_acquisitions++;
    cleaned_up++;
    MUST(pthread_mutex_unlock(&guard_lock));
    thread_done();
    (void)section;
}

NAMED static void *wait_for_ever(void *arg)
{
    struct section section;
    tid[(long)arg] = my_tid();
    ACQUIRE(truth, &section);
    pthread_cleanup_push(release, &section);
    for (;;)
        pthread_cond_wait(&never, &guard_lock);
    pthread_cleanup_pop(0);
    return NULL;
}

int main(int argc, char **argv)
{
    long threads = number(argc, argv, 1, 10);
    if (threads < 1 || threads > MAX_CANCELLED)
        die("cancel", EINVAL);
    truth = truth_of("guard_lock", &guard_lock);
    ready_and_go();
    for (long i = 0; i < threads; i++) {
        pthread_t thread;
        void *result;
        MUST(pthread_create(&thread, NULL, wait_for_ever, (void *)i));
        await_blocked(&tid[i], &never, sizeof never);
        MUST(pthread_cancel(thread));
        MUST(pthread_join(thread, &result));
        if (result != PTHREAD_CANCELED)
            die("a thread was not cancelled", EINVAL);
    }
    fact("cleaned_up", cleaned_up);
    return finish("cancel");
}
