// Uses a lock that nobody else wants while a second thread sleeps, so that glibc does not skip its atomics. A command a
// line on stdin: "WHAT MS", of the names in the table below. The answer is a line with how many uses were made, how
// long that took in ns, and the thread's CPU time for it in ns.
#include <inttypes.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

enum { BATCH = 100 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *sleep_on(void *arg)
{
    for (;;)
        pause();
    return arg;
}

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

// A function that makes a batch of uses.
#define USES(name, use)                     \
    static void name(void)                  \
    {                                       \
        for (int i = 0; i < BATCH; i++) {   \
            use                             \
        }                                   \
    }

// A lock of the program's own, which own.toml describes.
static _Atomic unsigned own_word;

__attribute__((noipa)) void own_lock(_Atomic unsigned *word)
{
    __asm__ volatile("nop");
    while (__atomic_exchange_n((unsigned *)word, 1, __ATOMIC_ACQUIRE))
        ;
}

__attribute__((noipa)) void own_unlock(_Atomic unsigned *word)
{
    // Functions that do more begin with such an instruction: one that the kernel emulates.
    __asm__ volatile("nop");
    __atomic_store_n((unsigned *)word, 0, __ATOMIC_RELEASE);
}

static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_spinlock_t spinlock;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t barrier;
static pthread_once_t done = PTHREAD_ONCE_INIT;
static mtx_t mtx;
static sem_t semaphore;
static struct timespec far = {.tv_sec = INT64_C(1) << 40};

static void nothing(void)
{
}

USES(calls, syscall(SYS_getppid);)
USES(mutex, pthread_mutex_lock(&lock); pthread_mutex_unlock(&lock);)
USES(mutex_try, pthread_mutex_trylock(&lock); pthread_mutex_unlock(&lock);)
USES(mutex_timed, pthread_mutex_timedlock(&lock, &far); pthread_mutex_unlock(&lock);)
USES(rwlock_read, pthread_rwlock_rdlock(&rwlock); pthread_rwlock_unlock(&rwlock);)
USES(rwlock_write, pthread_rwlock_wrlock(&rwlock); pthread_rwlock_unlock(&rwlock);)
USES(spin, pthread_spin_lock(&spinlock); pthread_spin_unlock(&spinlock);)
USES(c11_mutex, mtx_lock(&mtx); mtx_unlock(&mtx);)
USES(semaphore_wait_post, sem_wait(&semaphore); sem_post(&semaphore);)
USES(cond_signal, pthread_cond_signal(&cond);)
USES(barrier_of_one, pthread_barrier_wait(&barrier);)
USES(own, own_lock(&own_word); own_unlock(&own_word);)
USES(once_done, pthread_once(&done, nothing);)

static const struct {
    const char *name;
    void (*uses)(void);
} table[] = {
    {"calls", calls},
    {"mutex", mutex},
    {"mutex_try", mutex_try},
    {"mutex_timed", mutex_timed},
    {"rwlock_read", rwlock_read},
    {"rwlock_write", rwlock_write},
    {"spin", spin},
    {"c11_mutex", c11_mutex},
    {"semaphore", semaphore_wait_post},
    {"cond_signal", cond_signal},
    {"barrier_of_one", barrier_of_one},
    {"own", own},
    {"once_done", once_done},
};

static void (*uses_of(const char *name))(void)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (strcmp(table[i].name, name) == 0)
            return table[i].uses;
    return NULL;
}

int main(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, sleep_on, NULL) || pthread_spin_init(&spinlock, 0) || mtx_init(&mtx, mtx_plain) ||
        sem_init(&semaphore, 0, 1) || pthread_barrier_init(&barrier, NULL, 1)) {
        fputs("failed to make a thread or a lock\n", stderr);
        return 1;
    }
    char what[32];
    uint64_t milliseconds;
    while (scanf("%31s %" SCNu64, what, &milliseconds) == 2) {
        void (*work)(void) = uses_of(what);
        if (!work) {
            fprintf(stderr, "no such use: %s\n", what);
            return 1;
        }
        uint64_t made = 0, cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID), begin = clock_ns(CLOCK_MONOTONIC), now;
        do {
            work();
            made += BATCH;
            now = clock_ns(CLOCK_MONOTONIC);
        } while (now - begin < milliseconds * 1000000);
        cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID) - cpu;
        printf("%" PRIu64 " %" PRIu64 " %" PRIu64 "\n", made, now - begin, cpu);
        fflush(stdout);
    }
    return 0;
}
