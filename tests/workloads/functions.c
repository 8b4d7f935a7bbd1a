// functions THREADS TIMES FILE: each thread calls functions of the C library in known numbers. What a call does inside of the
// library is not called here: every fwrite writes, every printf-like call writes.
#include "truth.h"
#include <fcntl.h>

static const char *path;
static long times;

NAMED static void *work(void *arg)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    int file = open(path, O_WRONLY | O_APPEND);
    if (file < 0)
        die("open", errno);
    FILE *unbuffered = fopen(path, "a");
    if (!unbuffered)
        die("fopen", errno);
    setvbuf(unbuffered, NULL, _IONBF, 0);
    char *volatile copy = malloc(1 << 16);
    for (long i = 0; i < times; i++) {
        // More than the thread's own cache of small blocks takes, so that free does some work.
        void *volatile block = malloc(64);
        free(block);
        block = calloc(3, 5000);
        block = realloc(block, 30000);
        free(block);
        memset(copy, (int)i, 1 << 15);
        memcpy(copy + (1 << 15), copy, 1 << 15);
        MUST(pthread_mutex_lock(&lock));
        MUST(pthread_mutex_unlock(&lock));
        if (write(file, "x", 1) != 1)
            die("write", errno);
        // Each of these writes by itself.
        if (fwrite("yy", 1, 2, unbuffered) != 2 || fprintf(unbuffered, "%ld\n", i) < 0)
            die("fwrite", errno);
    }
    free(copy);
    fclose(unbuffered);
    close(file);
    return arg;
}

int main(int argc, char **argv)
{
    pthread_t threads[64];
    long n = number(argc, argv, 1, 2);
    times = number(argc, argv, 2, 100);
    path = argc > 3 ? argv[3] : "/dev/null";
    if (n < 1 || n > 64)
        die("functions", EINVAL);
    ready_and_go();
    for (long i = 0; i < n; i++)
        MUST(pthread_create(&threads[i], NULL, work, NULL));
    for (long i = 0; i < n; i++)
        MUST(pthread_join(threads[i], NULL));
    return finish("functions");
}
