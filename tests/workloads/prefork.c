// prefork WORKERS HOLD_US MS: forked workers that take turns with a mutex in shared memory, HOLD_US microseconds each, for MS milliseconds.
// Facts: waited_ns (of all of them in the lock call), acquisitions, lasted_ns, and `worker.PID` of each.
#include "truth.h"
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

struct shared {
    pthread_mutex_t lock;
    _Atomic int go;
    _Atomic uint64_t waited_ns, acquisitions;
};

static struct shared *shared;
static uint64_t hold_ns, work_ns;

NAMED static void serve(void)
{
    uint64_t from = now_ns();
    MUST(pthread_mutex_lock(&shared->lock));
    shared->waited_ns += now_ns() - from;
    shared->acquisitions++;
    sleep_ns(hold_ns);
    MUST(pthread_mutex_unlock(&shared->lock));
}

static int worker(void)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (!shared->go)
        sleep_ns(100000);
    for (uint64_t begin = now_ns(); now_ns() - begin < work_ns;)
        serve();
    return 0;
}

int main(int argc, char **argv)
{
    long workers = number(argc, argv, 1, 4);
    hold_ns = (uint64_t)number(argc, argv, 2, 300) * 1000;
    work_ns = (uint64_t)number(argc, argv, 3, 3000) * 1000000;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        die("mmap", errno);
    pthread_mutexattr_t attr;
    MUST(pthread_mutexattr_init(&attr));
    MUST(pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED));
    MUST(pthread_mutex_init(&shared->lock, &attr));
    for (long i = 0; i < workers; i++) {
        pid_t pid = fork();
        if (pid == -1)
            die("fork", errno);
        if (pid == 0)
            return worker();
        char name[32];
        snprintf(name, sizeof name, "worker.%d", pid);
        fact(name, 1);
    }
    ready_and_go();
    uint64_t begin = now_ns();
    shared->go = 1;
    int status;
    while (waitpid(-1, &status, 0) > 0) {
        if (status != 0)
            die("worker", ECHILD);
    }
    fact("waited_ns", shared->waited_ns);
    fact("acquisitions", shared->acquisitions);
    fact("lasted_ns", now_ns() - begin);
    return finish("prefork");
}
