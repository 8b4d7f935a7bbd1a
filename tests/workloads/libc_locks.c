// libc_locks ROUNDS: the C library's own locks, waited for by threads that share one FILE and one malloc arena (run with
// MALLOC_ARENA_MAX=1 and without the thread caches: GLIBC_TUNABLES=glibc.malloc.tcache_count=0).
//   stdio   one thread keeps a FILE locked ROUNDS times until another sleeps in fputs, and for 1 ms more
//   malloc  threads allocate and free for a while
// Facts: stdio_waits_ns (at least), allocations.
#include "truth.h"

static FILE *shared;
static long rounds;
static _Atomic pid_t writer_tid;
static _Atomic long written;
static _Atomic bool over;
static _Atomic uint64_t allocations;

NAMED static void write_line(void)
{
    fputs("a line\n", shared);
}

static void *writer(void *arg)
{
    writer_tid = my_tid();
    for (long i = 0; i < rounds; i++) {
        while (written != 2 * i + 1)
            sleep_ns(20000);
        write_line();
        written++;
    }
    thread_done();
    return arg;
}

// The C library's lock of a FILE is at an address that it alone knows: the other thread is asked whether it sleeps in any futex call.
static void await_futex_call(void)
{
    char path[64], text[256];
    for (;;) {
        snprintf(path, sizeof path, "/proc/self/task/%d/syscall", (int)writer_tid);
        FILE *file = fopen(path, "re");
        bool waits = file && fgets(text, sizeof text, file) && atoi(text) == SYS_futex;
        if (file)
            fclose(file);
        if (waits)
            return;
        sleep_ns(50000);
    }
}

NAMED static void allocate(void)
{
    void *block[16];
    for (int i = 0; i < 16; i++)
        block[i] = malloc(5000 + 64 * (size_t)i);
    for (int i = 0; i < 16; i++)
        free(block[i]);
    allocations += 16;
}

static void *allocator(void *arg)
{
    while (!over)
        allocate();
    thread_done();
    return arg;
}

int main(int argc, char **argv)
{
    rounds = number(argc, argv, 1, 20);
    shared = fopen("/dev/null", "we");
    if (!shared)
        die("/dev/null", errno);
    ready_and_go();
    pthread_t thread[4];
    MUST(pthread_create(&thread[0], NULL, writer, NULL));
    uint64_t waited = 0;
    for (long i = 0; i < rounds; i++) {
        flockfile(shared);
        written = 2 * i + 1;
        await_futex_call();
        uint64_t from = now_ns();
        sleep_ns(1000000);
        waited += now_ns() - from;
        funlockfile(shared);
        while (written != 2 * i + 2)
            sleep_ns(20000);
    }
    MUST(pthread_join(thread[0], NULL));
    for (int i = 0; i < 4; i++)
        MUST(pthread_create(&thread[i], NULL, allocator, NULL));
    sleep_ns(500000000);
    over = true;
    for (int i = 0; i < 4; i++)
        MUST(pthread_join(thread[i], NULL));
    thread_done();
    fact("stdio_waits_ns", waited);
    fact("allocations", allocations);
    return finish("libc_locks");
}
