// signals ROUNDS [FLAGS]: threads wait for a mutex of each sort, a read-write lock, a semaphore and a condition, and are interrupted
// by signals all the while, in whose handler locks are used, too. The main thread keeps each lock until it is waited for, and for
// HOLD_NS more. FLAGS:
//   r  system calls go on after the handler (SA_RESTART)
//   a  the handler runs on a stack of its own, above that of its thread
//   l  it locks mutexes; without, it only posts a semaphore
// Facts: handled, idle_min_ns, cond_addr.
#include "truth.h"

#include <semaphore.h>
#include <signal.h>
#include <sys/mman.h>

#define WAITERS 6
#define HOLD_NS 2000000
#define HANDLER_STACK (1 << 16)

pthread_mutex_t plain_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t timed_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t robust_lock;
pthread_rwlock_t table_lock = PTHREAD_RWLOCK_INITIALIZER;
pthread_mutex_t cond_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t handler_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t tried_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
sem_t work, posted;

static struct lock_truth *plain, *timed, *robust, *table, *queue, *work_truth, *in_handler, *tried;
static long rounds, taken;
static bool locks;
static _Atomic pid_t tid[WAITERS];
static _Atomic long done[WAITERS], round_begun;
static _Atomic bool over;
static _Atomic uint64_t handled;
static uint64_t idle_min_ns;
static char *handler_stacks;

static void handle(int signal)
{
    int error = errno;
    struct section section;
    handled++;
    sem_post(&posted);
    if (locks) {
        ACQUIRE(in_handler, &section);
        RELEASE(in_handler, &section);
        section.called = now_ns();
        if (pthread_mutex_trylock(&tried_lock) == 0) {
            acquired(tried, &section);
            RELEASE(tried, &section);
        } else {
            failed(tried, section.called);
            tried->try_failures++;
        }
    }
    errno = error;
    (void)signal;
}

NAMED static void wait_for(long what)
{
    struct section section;
    struct timespec deadline;
    switch (what) {
    case 0:
        ACQUIRE(plain, &section);
        RELEASE(plain, &section);
        break;
    case 1:
        clock_gettime(CLOCK_REALTIME, &deadline);
        deadline.tv_sec += 100;
        ACQUIRE_BY(timed, &section, pthread_mutex_timedlock(&timed_lock, &deadline));
        RELEASE(timed, &section);
        break;
    case 2:
        ACQUIRE(robust, &section);
        RELEASE(robust, &section);
        break;
    case 3:
        ACQUIRE_BY(table, &section, pthread_rwlock_wrlock(&table_lock));
        RELEASE_BY(table, &section, pthread_rwlock_unlock(&table_lock));
        break;
    case 4:
        for (;;) {
            uint64_t called = now_ns();
            if (sem_wait(&work) == 0) {
                section.called = called;
                acquired(work_truth, &section);
                work_truth->span_ns += now_ns() - called;
                break;
            }
            if (errno != EINTR)
                die("sem_wait", errno);
            failed(work_truth, called);
            work_truth->errors++;
        }
        break;
    default:
        ACQUIRE(queue, &section);
        while (taken <= done[what])
            COND_WAIT(queue, &section, &cond);
        RELEASE(queue, &section);
    }
}

static void *waiter(void *arg)
{
    long what = (long)arg;
    stack_t stack = {.ss_sp = handler_stacks + what * HANDLER_STACK, .ss_size = HANDLER_STACK};
    if (sigaltstack(&stack, NULL))
        die("sigaltstack", errno);
    for (long i = 0; i < rounds; i++) {
        tid[what] = my_tid();
        wait_for(what);
        tid[what] = 0;
        done[what]++;
        while (i + 1 < rounds && round_begun <= i)
            sleep_ns(100000);
    }
    thread_done();
    return NULL;
}

static void *bombard(void *arg)
{
    pthread_t *threads = arg;
    while (!over) {
        for (int i = 0; i < WAITERS; i++)
            MUST(pthread_kill(threads[i], SIGPROF));
        sleep_ns(150000);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    rounds = number(argc, argv, 1, 20);
    const char *flags = argc > 2 ? argv[2] : "";
    locks = strchr(flags, 'l') != NULL;
    pthread_mutexattr_t attr;
    MUST(pthread_mutexattr_init(&attr));
    MUST(pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST));
    MUST(pthread_mutex_init(&robust_lock, &attr));
    sem_init(&work, 0, 0);
    sem_init(&posted, 0, 0);
    plain = truth_of("plain_lock", &plain_lock);
    timed = truth_of("timed_lock", &timed_lock);
    robust = truth_of("robust_lock", &robust_lock);
    table = truth_of("table_lock", &table_lock);
    queue = truth_of("cond_lock", &cond_lock);
    work_truth = truth_of("work", &work);
    if (locks) {
        in_handler = truth_of("handler_lock", &handler_lock);
        tried = truth_of("tried_lock", &tried_lock);
    }
    // Before the threads' stacks, so that it is above them: there, the kernel takes what was called below for left.
    handler_stacks = mmap(NULL, WAITERS * HANDLER_STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (handler_stacks == MAP_FAILED)
        die("mmap", errno);
    struct sigaction action = {.sa_handler = handle};
    action.sa_flags = (strchr(flags, 'r') ? SA_RESTART : 0) | (strchr(flags, 'a') ? SA_ONSTACK : 0);
    if (sigaction(SIGPROF, &action, NULL))
        die("sigaction", errno);
    ready_and_go();

    // The main thread and the one that sends the signals are not interrupted.
    sigset_t only;
    sigemptyset(&only);
    sigaddset(&only, SIGPROF);
    pthread_t threads[WAITERS], bomber;
    struct section a, b, c, d, e;
    ACQUIRE(plain, &a);
    ACQUIRE(timed, &b);
    ACQUIRE(robust, &c);
    ACQUIRE_BY(table, &d, pthread_rwlock_wrlock(&table_lock));
    for (long i = 0; i < WAITERS; i++)
        MUST(pthread_create(&threads[i], NULL, waiter, (void *)i));
    MUST(pthread_sigmask(SIG_BLOCK, &only, NULL));
    MUST(pthread_create(&bomber, NULL, bombard, threads));
    for (long i = 0; i < rounds; i++) {
        await_blocked(&tid[0], &plain_lock, sizeof plain_lock);
        await_blocked(&tid[1], &timed_lock, sizeof timed_lock);
        await_blocked(&tid[2], &robust_lock, sizeof robust_lock);
        await_blocked(&tid[3], &table_lock, sizeof table_lock);
        await_blocked(&tid[4], &work, sizeof work);
#ifdef __GLIBC__
        // musl's condition variables have their futex words on the stacks of those that wait.
        await_blocked(&tid[5], &cond, sizeof cond);
#endif
        sleep_ns(HOLD_NS);
        struct lock_truth *waited_for[] = {plain, timed, robust, table};
        for (int k = 0; k < 4; k++) {
            waited_for[k]->wait_min_ns += HOLD_NS;
            waited_for[k]->contended++;
        }
        idle_min_ns += HOLD_NS;
        RELEASE(plain, &a);
        RELEASE(timed, &b);
        RELEASE(robust, &c);
        RELEASE_BY(table, &d, pthread_rwlock_unlock(&table_lock));
        sem_post(&work);
        ACQUIRE(queue, &e);
        taken++;
        RELEASE(queue, &e);
        MUST(pthread_cond_signal(&cond));
        // Each has had its lock before it is taken again.
        for (int k = 0; k < WAITERS; k++)
            while (done[k] <= i)
                sleep_ns(50000);
        if (i + 1 == rounds)
            break;
        ACQUIRE(plain, &a);
        ACQUIRE(timed, &b);
        ACQUIRE(robust, &c);
        ACQUIRE_BY(table, &d, pthread_rwlock_wrlock(&table_lock));
        round_begun++;
    }
    over = true;
    MUST(pthread_join(bomber, NULL));
    for (int i = 0; i < WAITERS; i++)
        MUST(pthread_join(threads[i], NULL));
    fact("handled", handled);
    fact("idle_min_ns", idle_min_ns);
    fact("cond_addr", (uint64_t)(uintptr_t)&cond);
    thread_done();
    return finish("signals");
}
