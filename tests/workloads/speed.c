// speed [INTERVAL_MS]: locks and unlocks `tight_lock` as fast as it can while a second thread is idle (so that glibc does
// not skip its atomics), and prints after every interval how many pairs it made in a second of its CPU time, a number a line, until
// stdin is closed: what other programs leave it of the machine does not matter.
// It starts at "ready" and needs no "go".
#include "truth.h"
#include <poll.h>

pthread_mutex_t tight_lock = PTHREAD_MUTEX_INITIALIZER;

static void *idle(void *arg)
{
    for (;;)
        pause();
    return arg;
}

NAMED static void pairs(int count)
{
    for (int i = 0; i < count; i++) {
        pthread_mutex_lock(&tight_lock);
        pthread_mutex_unlock(&tight_lock);
    }
}

int main(int argc, char **argv)
{
    uint64_t interval_ns = (uint64_t)number(argc, argv, 1, 50) * 1000000;
    pthread_t thread;
    MUST(pthread_create(&thread, NULL, idle, NULL));
    ready();
    struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
    while (poll(&in, 1, 0) == 0) {
        uint64_t begin = now_ns(), cpu = own_cpu_ns(), made = 0;
        while (now_ns() - begin < interval_ns) {
            pairs(100);
            made += 100;
        }
        printf("%" PRIu64 "\n", made * 1000000000 / (own_cpu_ns() - cpu));
        fflush(stdout);
    }
    return 0;
}
