// signals ROUNDS [FLAGS]: threads wait for a mutex of each sort, read-write locks in both ways, semaphores and conditions, with deadlines and
// without, and are interrupted by signals all the while, in whose handler locks are used, too. The main thread keeps each lock until it is
// waited for, and for HOLD_NS more. FLAGS:
//   r  system calls go on after the handler (SA_RESTART)
//   a  the handler runs on a stack of its own, above that of its thread
//   l  it locks mutexes; without, it only posts a semaphore
// Facts: handled, idle_min_ns (of each condition), cond_addr, timed_cond_addr.
#include "truth.h"

#include <semaphore.h>
#include <signal.h>
#include <sys/mman.h>

// Of these the first LOCKS wait for locks that the main thread has.
#define WAITERS 12
#define LOCKS 8
#define FAR_S 100
#define HOLD_NS 2000000
#define HANDLER_STACK (1 << 16)

pthread_mutex_t plain_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t timed_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t robust_lock;
pthread_rwlock_t table_lock = PTHREAD_RWLOCK_INITIALIZER;
pthread_mutex_t clock_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t heir_lock;
pthread_rwlock_t read_lock = PTHREAD_RWLOCK_INITIALIZER;
pthread_rwlock_t late_lock = PTHREAD_RWLOCK_INITIALIZER;
pthread_mutex_t cond_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t timed_cond_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t handler_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t tried_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t cond = PTHREAD_COND_INITIALIZER, timed_cond = PTHREAD_COND_INITIALIZER;
sem_t work, timed_work, posted;

static struct lock_truth *plain, *timed, *robust, *table, *clocked, *heir, *readers, *late;
static struct lock_truth *queue, *timed_queue, *work_truth, *timed_work_truth, *in_handler, *tried;
static long rounds, taken, timed_taken;
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

static struct timespec far_from(clockid_t clock)
{
    struct timespec deadline;
    clock_gettime(clock, &deadline);
    deadline.tv_sec += FAR_S;
    return deadline;
}

// A call on a semaphore that may be interrupted, again and again until it succeeds.
#define SEM_WAIT(truth, section, call)                    \
    for (;;) {                                            \
        uint64_t called = now_ns();                       \
        if ((call) == 0) {                                \
            (section)->called = called;                   \
            acquired((truth), (section));                 \
            (truth)->span_ns += now_ns() - called;        \
            break;                                        \
        }                                                 \
        if (errno != EINTR)                               \
            die(#call, errno);                            \
        failed((truth), called);                          \
        (truth)->errors++;                                \
    }

NAMED static void wait_for(long what)
{
    struct section section;
    struct timespec deadline = far_from(CLOCK_REALTIME), monotonic = far_from(CLOCK_MONOTONIC);
    (void)monotonic;
    switch (what) {
    case 0:
        ACQUIRE(plain, &section);
        RELEASE(plain, &section);
        break;
    case 1:
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
#ifdef __GLIBC__
        ACQUIRE_BY(clocked, &section, pthread_mutex_clocklock(&clock_lock, CLOCK_MONOTONIC, &monotonic));
#else
        ACQUIRE_BY(clocked, &section, pthread_mutex_timedlock(&clock_lock, &deadline));
#endif
        RELEASE(clocked, &section);
        break;
    case 5:
        ACQUIRE(heir, &section);
        RELEASE(heir, &section);
        break;
    case 6:
        ACQUIRE_BY(readers, &section, pthread_rwlock_rdlock(&read_lock));
        RELEASE_BY(readers, &section, pthread_rwlock_unlock(&read_lock));
        break;
    case 7:
        ACQUIRE_BY(late, &section, pthread_rwlock_timedwrlock(&late_lock, &deadline));
        RELEASE_BY(late, &section, pthread_rwlock_unlock(&late_lock));
        break;
    case 8:
        SEM_WAIT(work_truth, &section, sem_wait(&work));
        break;
    case 9:
        SEM_WAIT(timed_work_truth, &section, sem_timedwait(&timed_work, &deadline));
        break;
    case 10:
        ACQUIRE(queue, &section);
        while (taken <= done[what])
            COND_WAIT(queue, &section, &cond);
        RELEASE(queue, &section);
        break;
    default:
        ACQUIRE(timed_queue, &section);
        while (timed_taken <= done[what])
            COND_WAIT_BY(timed_queue, &section, 0, pthread_cond_timedwait(&timed_cond, &timed_cond_lock, &deadline));
        RELEASE(timed_queue, &section);
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

static struct section held[LOCKS];

NAMED static void take_all(void)
{
    ACQUIRE(plain, &held[0]);
    ACQUIRE(timed, &held[1]);
    ACQUIRE(robust, &held[2]);
    ACQUIRE_BY(table, &held[3], pthread_rwlock_wrlock(&table_lock));
    ACQUIRE(clocked, &held[4]);
    ACQUIRE(heir, &held[5]);
    ACQUIRE_BY(readers, &held[6], pthread_rwlock_wrlock(&read_lock));
    ACQUIRE_BY(late, &held[7], pthread_rwlock_wrlock(&late_lock));
}

// Until each waits.
static void await_all(void)
{
    await_blocked(&tid[0], &plain_lock, sizeof plain_lock);
    await_blocked(&tid[1], &timed_lock, sizeof timed_lock);
    await_blocked(&tid[2], &robust_lock, sizeof robust_lock);
    await_blocked(&tid[3], &table_lock, sizeof table_lock);
    await_blocked(&tid[4], &clock_lock, sizeof clock_lock);
    await_blocked(&tid[5], &heir_lock, sizeof heir_lock);
    await_blocked(&tid[6], &read_lock, sizeof read_lock);
    await_blocked(&tid[7], &late_lock, sizeof late_lock);
    await_blocked(&tid[8], &work, sizeof work);
    await_blocked(&tid[9], &timed_work, sizeof timed_work);
#ifdef __GLIBC__
    // musl's condition variables have their futex words on the stacks of those that wait.
    await_blocked(&tid[10], &cond, sizeof cond);
    await_blocked(&tid[11], &timed_cond, sizeof timed_cond);
#endif
}

NAMED static void give_all(void)
{
    struct section section;
    RELEASE(plain, &held[0]);
    RELEASE(timed, &held[1]);
    RELEASE(robust, &held[2]);
    RELEASE_BY(table, &held[3], pthread_rwlock_unlock(&table_lock));
    RELEASE(clocked, &held[4]);
    RELEASE(heir, &held[5]);
    RELEASE_BY(readers, &held[6], pthread_rwlock_unlock(&read_lock));
    RELEASE_BY(late, &held[7], pthread_rwlock_unlock(&late_lock));
    sem_post(&work);
    sem_post(&timed_work);
    ACQUIRE(queue, &section);
    taken++;
    RELEASE(queue, &section);
    MUST(pthread_cond_signal(&cond));
    ACQUIRE(timed_queue, &section);
    timed_taken++;
    RELEASE(timed_queue, &section);
    MUST(pthread_cond_signal(&timed_cond));
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
    MUST(pthread_mutexattr_init(&attr));
    MUST(pthread_mutexattr_setprotocol(&attr, PTHREAD_PRIO_INHERIT));
    MUST(pthread_mutex_init(&heir_lock, &attr));
    sem_init(&work, 0, 0);
    sem_init(&timed_work, 0, 0);
    sem_init(&posted, 0, 0);
    plain = truth_of("plain_lock", &plain_lock);
    timed = truth_of("timed_lock", &timed_lock);
    robust = truth_of("robust_lock", &robust_lock);
    table = truth_of("table_lock", &table_lock);
    clocked = truth_of("clock_lock", &clock_lock);
    heir = truth_of("heir_lock", &heir_lock);
    readers = truth_of("read_lock", &read_lock);
    late = truth_of("late_lock", &late_lock);
    queue = truth_of("cond_lock", &cond_lock);
    timed_queue = truth_of("timed_cond_lock", &timed_cond_lock);
    work_truth = truth_of("work", &work);
    timed_work_truth = truth_of("timed_work", &timed_work);
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
    take_all();
    for (long i = 0; i < WAITERS; i++)
        MUST(pthread_create(&threads[i], NULL, waiter, (void *)i));
    MUST(pthread_sigmask(SIG_BLOCK, &only, NULL));
    MUST(pthread_create(&bomber, NULL, bombard, threads));
    for (long i = 0; i < rounds; i++) {
        await_all();
        sleep_ns(HOLD_NS);
        struct lock_truth *waited_for[LOCKS] = {plain, timed, robust, table, clocked, heir, readers, late};
        for (int k = 0; k < LOCKS; k++) {
            waited_for[k]->wait_min_ns += HOLD_NS;
            waited_for[k]->contended++;
        }
        idle_min_ns += HOLD_NS;
        give_all();
        // Each has had its lock before it is taken again.
        for (int k = 0; k < WAITERS; k++)
            while (done[k] <= i)
                sleep_ns(50000);
        if (i + 1 == rounds)
            break;
        take_all();
        round_begun++;
    }
    over = true;
    MUST(pthread_join(bomber, NULL));
    for (int i = 0; i < WAITERS; i++)
        MUST(pthread_join(threads[i], NULL));
    fact("handled", handled);
    fact("idle_min_ns", idle_min_ns);
    fact("cond_addr", (uint64_t)(uintptr_t)&cond);
    fact("timed_cond_addr", (uint64_t)(uintptr_t)&timed_cond);
    thread_done();
    return finish("signals");
}
