// RDTSC-Lock, the recorder that HaLock (section 5.1) is compared with, as far as the paper describes it: preloaded, it takes the place of
// the lock functions, reads the time-stamp counter around each and writes a record into memory: thread (10 bits), lock (22 bits of its
// address), operation, time stamp. With RDTSC_LOCK=monitor in its environment it reads the counter, but writes nothing.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

// The paper's 64 MB, a part for each of the 1,024 threads that it tells apart.
enum { REGION = 64 << 20, THREADS = 1024, RECORDS = REGION / THREADS / 16 };
enum operation { LOCK, LOCKED, TRIED, UNLOCK, UNLOCKED };

static int (*real_lock)(pthread_mutex_t *), (*real_trylock)(pthread_mutex_t *), (*real_unlock)(pthread_mutex_t *);
static struct record {
    uint64_t stamp, what;
} *region;
static int writes;
static _Atomic uint32_t threads;
static _Thread_local struct record *mine;
static _Thread_local uint32_t number, next;

static inline uint64_t stamp(void)
{
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
    uint64_t now;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(now));
    return now;
#endif
}

static inline void tell(uint64_t now, const void *lock, enum operation operation)
{
    if (!writes) {
        __asm__ volatile("" : : "r"(now));
        return;
    }
    if (!mine) {
        number = atomic_fetch_add(&threads, 1) % THREADS;
        mine = region + (size_t)number * RECORDS;
    }
    uint64_t address = (uint64_t)(uintptr_t)lock >> 4 & ((1 << 22) - 1);
    mine[next] = (struct record){now, (uint64_t)number << 32 | address << 8 | operation};
    next = (next + 1) % RECORDS;
}

__attribute__((constructor)) static void begin(void)
{
    const char *mode = getenv("RDTSC_LOCK");
    writes = !mode || strcmp(mode, "monitor") != 0;
    real_lock = dlsym(RTLD_NEXT, "pthread_mutex_lock");
    real_trylock = dlsym(RTLD_NEXT, "pthread_mutex_trylock");
    real_unlock = dlsym(RTLD_NEXT, "pthread_mutex_unlock");
    region = mmap(NULL, REGION, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (region == MAP_FAILED)
        abort();
}

int pthread_mutex_lock(pthread_mutex_t *lock)
{
    tell(stamp(), lock, LOCK);
    int result = real_lock(lock);
    tell(stamp(), lock, LOCKED);
    return result;
}

int pthread_mutex_trylock(pthread_mutex_t *lock)
{
    int result = real_trylock(lock);
    tell(stamp(), lock, TRIED);
    return result;
}

int pthread_mutex_unlock(pthread_mutex_t *lock)
{
    tell(stamp(), lock, UNLOCK);
    int result = real_unlock(lock);
    tell(stamp(), lock, UNLOCKED);
    return result;
}
