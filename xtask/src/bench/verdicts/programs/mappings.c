// Threads that map small buffers, beside one that maps a large one with all its pages: they wait for the kernel's mmap_lock.
#include "program.h"

#include <sys/mman.h>

#define SMALL (16 * 4096ul)
#define LARGE_BYTES (32ul << 20)

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t listed;

static void *map(size_t size, int flags)
{
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    if (memory == MAP_FAILED)
        die("mmap");
    return memory;
}

static LARGE void renew_arena(void)
{
    void *memory = map(LARGE_BYTES, MAP_POPULATE); // culprit
    madvise(memory, LARGE_BYTES, MADV_DONTNEED);
    munmap(memory, LARGE_BYTES); // culprit
}

static LARGE void use_buffer(void)
{
    char *memory = (char *)map(SMALL, 0);
    memory[0] = 1;
    munmap(memory, SMALL);
}

static LARGE void list_buffer(void)
{
    pthread_mutex_lock(&list_lock);
    listed++;
    pthread_mutex_unlock(&list_lock);
}

static void *worker(void *arg)
{
    for (;;) {
        use_buffer();
        list_buffer();
        did((long)arg);
    }
    return NULL;
}

static void *renewer(void *arg)
{
    for (;;) {
        if (cured)
            sleep_us(1000);
        else
            renew_arena();
    }
    return NULL;
}

int main(int argc, char **argv)
{
    start(argc, argv);
    begin(renewer, NULL);
    begin_all(worker, 0, 3);
    return answer();
}
