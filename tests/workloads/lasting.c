// lasting WAITERS: after "go" an outer holder takes `outer_lock` and asks for `inner_lock`, which an inner holder has while it reads from
// stdin; WAITERS threads wait for `outer_lock`. The line "held" is printed when all sleep. The inner holder goes on at the next byte on
// stdin, so all waits last until then, and end. Two more threads, idle on a condition variable and on a semaphore, wait for no lock.
#include "truth.h"
#include <semaphore.h>

#define MAX_WAITERS 16

pthread_mutex_t outer_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t inner_lock = PTHREAD_MUTEX_INITIALIZER;

static pthread_mutex_t idle_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t idle = PTHREAD_COND_INITIALIZER;
static sem_t work;
static bool over;
static pthread_barrier_t held;
static _Atomic pid_t outer_tid, waiter_tid[MAX_WAITERS];

NAMED static void read_under_lock(void)
{
    char byte;
    if (read(STDIN_FILENO, &byte, 1) != 1)
        die("stdin", errno);
}

NAMED static void *inner_holder(void *arg)
{
    MUST(pthread_mutex_lock(&inner_lock));
    pthread_barrier_wait(&held);
    read_under_lock();
    MUST(pthread_mutex_unlock(&inner_lock));
    return arg;
}

NAMED static void *outer_holder(void *arg)
{
    outer_tid = my_tid();
    MUST(pthread_mutex_lock(&outer_lock));
    pthread_barrier_wait(&held);
    MUST(pthread_mutex_lock(&inner_lock));
    MUST(pthread_mutex_unlock(&inner_lock));
    MUST(pthread_mutex_unlock(&outer_lock));
    return arg;
}

NAMED static void *lasting_waiter(void *arg)
{
    waiter_tid[(long)arg] = my_tid();
    MUST(pthread_mutex_lock(&outer_lock));
    MUST(pthread_mutex_unlock(&outer_lock));
    return NULL;
}

NAMED static void *idle_thread(void *arg)
{
    MUST(pthread_mutex_lock(&idle_lock));
    while (!over)
        MUST(pthread_cond_wait(&idle, &idle_lock));
    MUST(pthread_mutex_unlock(&idle_lock));
    return arg;
}

NAMED static void *idle_worker(void *arg)
{
    MUST(sem_wait(&work));
    return arg;
}

int main(int argc, char **argv)
{
    long waiters = number(argc, argv, 1, 3);
    if (waiters < 1 || waiters > MAX_WAITERS)
        die("lasting", EINVAL);
    truth_of("outer_lock", &outer_lock);
    truth_of("inner_lock", &inner_lock);
    MUST(pthread_barrier_init(&held, NULL, 3));
    MUST(sem_init(&work, 0, 0));
    ready_and_go();
    pthread_t outer, inner, thread[MAX_WAITERS], cond_idle, sem_idle;
    MUST(pthread_create(&cond_idle, NULL, idle_thread, NULL));
    MUST(pthread_create(&sem_idle, NULL, idle_worker, NULL));
    MUST(pthread_create(&inner, NULL, inner_holder, NULL));
    MUST(pthread_create(&outer, NULL, outer_holder, NULL));
    pthread_barrier_wait(&held);
    await_blocked(&outer_tid, &inner_lock, sizeof inner_lock);
    for (long i = 0; i < waiters; i++)
        MUST(pthread_create(&thread[i], NULL, lasting_waiter, (void *)i));
    for (long i = 0; i < waiters; i++)
        await_blocked(&waiter_tid[i], &outer_lock, sizeof outer_lock);
    puts("held");
    fflush(stdout);
    MUST(pthread_join(inner, NULL));
    MUST(pthread_join(outer, NULL));
    for (long i = 0; i < waiters; i++)
        MUST(pthread_join(thread[i], NULL));
    MUST(sem_post(&work));
    MUST(pthread_mutex_lock(&idle_lock));
    over = true;
    MUST(pthread_cond_signal(&idle));
    MUST(pthread_mutex_unlock(&idle_lock));
    MUST(pthread_join(cond_idle, NULL));
    MUST(pthread_join(sem_idle, NULL));
    return finish("lasting");
}
