// sleeper THREADS: THREADS threads that sleep on a condition variable until the program is killed. Dies with its parent.
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;

static void *sleeper(void *arg)
{
    pthread_mutex_lock(&mutex);
    for (;;)
        pthread_cond_wait(&never, &mutex);
    return arg;
}

int main(int argc, char **argv)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (int i = 1; argc > 1 && i < atoi(argv[1]); i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, sleeper, NULL))
            return 1;
    }
    sleeper(NULL);
}
