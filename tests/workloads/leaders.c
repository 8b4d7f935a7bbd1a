// leaders HOW ITERATIONS [MS]: who the main thread is changes. Each iteration is 100 sections of `shared_lock`,
// and a sleep of 1 ms (with MS and `before` or `during`: work for so long). HOW:
//   before   the main thread has ended before it is ready: another thread works
//   during   the main thread ends in the middle of the work of another one
//   chain    so does each thread that goes on, ten of them
//   exec     another thread replaces the program, after half of the work; the new one begins MS after its start
//   leader   the main thread does
//   renamed  (with `--comm wanted`) the main thread gives the working one that name
//   blinded  another copy of the C library's code takes the place of the one that is there, after half of the work
#include "truth.h"
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>

static pthread_mutex_t shared_lock = PTHREAD_MUTEX_INITIALIZER;

static struct lock_truth *truth;
static long iterations, delay_ms;
static const char *how;
static char **arguments;
static pthread_t first;
static bool busy;
static int replaced;

NAMED static void work(long times)
{
    for (long i = 0; i < times; i++) {
        for (int j = 0; j < 100; j++) {
            struct section section;
            ACQUIRE(truth, &section);
            RELEASE(truth, &section);
        }
        if (busy)
            for (uint64_t until = now_ns() + 1000000; now_ns() < until;)
                ;
        else
            sleep_ns(1000000);
    }
}

static void *working(void *times)
{
    work((long)times);
    thread_done();
    return NULL;
}

static _Noreturn void end(void)
{
    thread_done();
    exit(finish("leaders"));
}

static void replace(void)
{
    thread_done();
    char done[24];
    snprintf(done, sizeof done, "%" PRIu64, (uint64_t)truth->acquisitions);
    execl("/proc/self/exe", arguments[0], how, arguments[2], arguments[3], done, (char *)NULL);
    die("exec", errno);
}

static void *link_of_chain(void *left)
{
    work(iterations / 10);
    if ((long)left == 1)
        end();
    pthread_t next;
    MUST(pthread_create(&next, NULL, link_of_chain, (void *)((long)left - 1)));
    MUST(pthread_detach(next));
    thread_done();
    return NULL;
}

// The pages of the code that this function is called in get other memory with the same code.
static void take_the_place_of_the_library(void)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512], path[256];
    unsigned long start, stop, offset;
    while (maps && fgets(line, sizeof line, maps)) {
        if (sscanf(line, "%lx-%lx r-xp %lx %*s %*s %255s", &start, &stop, &offset, path) != 4 || !strstr(path, "/libc.so.6"))
            continue;
        size_t size = stop - start;
        int file = open(path, O_RDONLY);
        char *copy = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (file < 0 || copy == MAP_FAILED)
            die(path, errno);
        for (size_t done = 0; done < size;) {
            ssize_t n = pread(file, copy + done, size - done, (off_t)(offset + done));
            if (n <= 0)
                break;
            done += (size_t)n;
        }
        if (mprotect(copy, size, PROT_READ | PROT_EXEC) || mremap(copy, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, start) == MAP_FAILED)
            die("mremap", errno);
        replaced = 1;
        break;
    }
    // It was opened by code that is another now, but the same.
    if (maps)
        fclose(maps);
    if (!replaced)
        die("no C library", ENOENT);
}

// Each gives the lock back to threads that wait for it.
static void *contending(void *arg)
{
    for (long i = 0; i < iterations; i++) {
        struct section section;
        ACQUIRE(truth, &section);
        sleep_ns(1000000);
        RELEASE(truth, &section);
    }
    return arg;
}

static void *other(void *arg)
{
    if (!strcmp(how, "before")) {
        MUST(pthread_join(first, NULL));
        ready_and_go();
        work(iterations);
        end();
    }
    if (!strcmp(how, "during")) {
        work(iterations / 2);
        MUST(pthread_join(first, NULL));
        work(iterations - iterations / 2);
        end();
    }
    if (!strcmp(how, "chain"))
        return link_of_chain((void *)10);
    if (!strcmp(how, "exec")) {
        work(iterations / 2);
        replace();
    }
    return arg;
}

int main(int argc, char **argv)
{
    how = argc > 1 ? argv[1] : "during";
    iterations = number(argc, argv, 2, 200);
    delay_ms = number(argc, argv, 3, 0);
    busy = (!strcmp(how, "before") || !strcmp(how, "during")) && delay_ms;
    arguments = argv;
    first = pthread_self();
    truth = truth_of("shared_lock", &shared_lock);
    pthread_t thread;
    if (argc > 4) {
        sleep_ns((uint64_t)delay_ms * 1000000);
        work(iterations - iterations / 2);
        fact("before", (uint64_t)number(argc, argv, 4, 0));
        end();
    }
    if (strcmp(how, "before"))
        ready_and_go();
    if (!strcmp(how, "leader")) {
        work(iterations / 2);
        replace();
    }
    if (!strcmp(how, "renamed")) {
        MUST(pthread_create(&thread, NULL, working, (void *)iterations));
        // It has been decided by now that it is not wanted.
        sleep_ns((uint64_t)iterations * 500000);
        fact("before", truth->acquisitions);
        MUST(pthread_setname_np(thread, "wanted"));
        fact("after", truth->acquisitions);
        MUST(pthread_join(thread, NULL));
        end();
    }
    if (!strcmp(how, "blinded")) {
        // Nobody may be in the library while its code is replaced.
        work(iterations / 2);
        take_the_place_of_the_library();
        fact("replaced_after", truth->acquisitions);
        pthread_t threads[3];
        for (int i = 0; i < 3; i++)
            MUST(pthread_create(&threads[i], NULL, contending, NULL));
        for (int i = 0; i < 3; i++)
            MUST(pthread_join(threads[i], NULL));
        end();
    }
    MUST(pthread_create(&thread, NULL, other, NULL));
    if (!strcmp(how, "during") || !strcmp(how, "chain"))
        sleep_ns((uint64_t)iterations * 250000);
    if (!strcmp(how, "exec"))
        MUST(pthread_join(thread, NULL));
    pthread_exit(NULL);
}
