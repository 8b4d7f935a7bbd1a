// execer FIRST SECOND: locks `image_lock` FIRST times, replaces itself by a new image of the same program and locks it
// SECOND times: the same pid and (linked at a fixed address) the same lock address, but another lock.
#include "truth.h"

pthread_mutex_t image_lock = PTHREAD_MUTEX_INITIALIZER;

static struct lock_truth *truth;

NAMED static void work(long times)
{
    for (long i = 0; i < times; i++) {
        struct section section;
        ACQUIRE(truth, &section);
        RELEASE(truth, &section);
    }
}

int main(int argc, char **argv)
{
    truth = truth_of("image_lock", &image_lock);
    if (argc > 3) {
        work(number(argc, argv, 2, 0));
        thread_done();
        fact("first", (uint64_t)number(argc, argv, 1, 0));
        return finish("execer");
    }
    long first = number(argc, argv, 1, 300), second = number(argc, argv, 2, 700);
    ready_and_go();
    work(first);
    char arguments[2][24];
    snprintf(arguments[0], sizeof arguments[0], "%ld", first);
    snprintf(arguments[1], sizeof arguments[1], "%ld", second);
    execl("/proc/self/exe", argv[0], arguments[0], arguments[1], "second", (char *)NULL);
    die("exec", errno);
}
