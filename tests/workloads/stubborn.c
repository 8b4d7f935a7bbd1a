// stubborn [meek]: prints "stubborn PID UID", then two threads take `shared_lock` in turn until stdin is closed, for a minute at most. SIGTERM does
// not end it, unless it is meek.
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

pthread_mutex_t shared_lock = PTHREAD_MUTEX_INITIALIZER;

static void *work(void *unused)
{
    (void)unused;
    for (;;) {
        pthread_mutex_lock(&shared_lock);
        usleep(500);
        pthread_mutex_unlock(&shared_lock);
        usleep(500);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    alarm(60);
    if (argc < 2 || strcmp(argv[1], "meek"))
        signal(SIGTERM, SIG_IGN);
    printf("stubborn %d %d\n", (int)getpid(), (int)getuid());
    fflush(stdout);
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        if (pthread_create(&threads[i], NULL, work, NULL))
            return 1;
    char byte;
    while (read(0, &byte, 1) > 0) {
    }
    _exit(0);
}
