// kernel_mmap THREADS ROUNDS: threads that map memory, touch it and unmap it, so that they wait for their process's
// mmap_lock, as readers and as writers, and for page table locks. Each does ROUNDS rounds. They are there before the work
// begins.
#include "truth.h"

#include <sys/mman.h>

#define PAGE 4096
#define PAGES 16
#define MOST 64

static _Atomic bool begin;
static long rounds;

NAMED static void *mapper(void *arg)
{
    while (!begin)
        sleep_ns(1000000);
    for (long i = 0; i < rounds; i++) {
        char *memory = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED)
            die("mmap", errno);
        for (int page = 0; page < PAGES; page++)
            memory[page * PAGE] = 1;
        if (munmap(memory, PAGES * PAGE))
            die("munmap", errno);
    }
    thread_done();
    return arg;
}

int main(int argc, char **argv)
{
    long threads = number(argc, argv, 1, 4);
    rounds = number(argc, argv, 2, 1000);
    pthread_t started[MOST];
    if (threads > MOST)
        die("threads", EINVAL);
    for (long i = 0; i < threads; i++)
        MUST(pthread_create(&started[i], NULL, mapper, NULL));
    ready_and_go();
    uint64_t since = now_ns();
    begin = true;
    for (long i = 0; i < threads; i++)
        MUST(pthread_join(started[i], NULL));
    fact("work_ns", now_ns() - since);
    return finish("kernel_mmap");
}
