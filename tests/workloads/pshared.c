// pshared ROUNDS: locks in memory that two processes share, at different addresses.
//   lock   process-shared mutex: each process takes it ROUNDS times while the other does the same; then the child waits for it
//          ROUNDS times by design
//   gate   process-shared semaphore: the child waits for a permit of the parent's ROUNDS times, in vain at first
// The child calls itself `consumer`. The parent is told of by the truth; the counts are those of both. Facts: child (its pid), waited_ns (for the mutex at least).
#include "truth.h"
#include <semaphore.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define HOLD_NS 1000000

struct shared {
    pthread_mutex_t lock;
    sem_t gate;
    _Atomic int go, turn, passed, taken;
    _Atomic pid_t child_tid;
};

static struct shared *shared;
static long rounds;

static void take(void)
{
    MUST(pthread_mutex_lock(&shared->lock));
    MUST(pthread_mutex_unlock(&shared->lock));
}

static int child(void)
{
    // A program of another name.
    MUST(prctl(PR_SET_NAME, "consumer") ? errno : 0);
    // Elsewhere than in the parent.
    void *elsewhere = mmap(NULL, 1 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    shared = mremap(shared, sizeof *shared, sizeof *shared, MREMAP_MAYMOVE | MREMAP_FIXED, elsewhere);
    if (shared == MAP_FAILED)
        die("mremap", errno);
    shared->child_tid = my_tid();
    while (!shared->go)
        sleep_ns(100000);
    for (long i = 0; i < rounds; i++)
        take();
    for (long i = 0; i < rounds; i++) {
        while (shared->turn <= i)
            sleep_ns(20000);
        take();
        shared->passed++;
        MUST(sem_wait(&shared->gate) ? errno : 0);
        shared->taken++;
    }
    return 0;
}

// Whether the child sleeps in a futex call: all that it does then is to wait for what the parent keeps from it.
static void await_child(void)
{
    char path[64], line[16] = "";
    snprintf(path, sizeof path, "/proc/%d/syscall", shared->child_tid);
    snprintf(line, sizeof line, "%ld ", (long)SYS_futex);
    for (;;) {
        char got[16] = "";
        FILE *file = fopen(path, "r");
        bool sleeps = file && fgets(got, sizeof got, file) && strncmp(got, line, strlen(line)) == 0;
        if (file)
            fclose(file);
        if (sleeps)
            return;
        sleep_ns(50000);
    }
}

int main(int argc, char **argv)
{
    rounds = number(argc, argv, 1, 50);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        die("mmap", errno);
    pthread_mutexattr_t attr;
    MUST(pthread_mutexattr_init(&attr));
    MUST(pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED));
    MUST(pthread_mutex_init(&shared->lock, &attr));
    MUST(sem_init(&shared->gate, 1, 0) ? errno : 0);
    pid_t pid = fork();
    if (pid == -1)
        die("fork", errno);
    if (pid == 0)
        return child();
    while (!shared->child_tid)
        sleep_ns(100000);
    ready_and_go();
    shared->go = 1;
    for (long i = 0; i < rounds; i++)
        take();
    uint64_t waited_ns = 0;
    for (long i = 0; i < rounds; i++) {
        MUST(pthread_mutex_lock(&shared->lock));
        shared->turn = (int)i + 1;
        await_child();
        uint64_t from = now_ns();
        sleep_ns(HOLD_NS);
        waited_ns += now_ns() - from;
        MUST(pthread_mutex_unlock(&shared->lock));
        // Not the sleep for the mutex once more.
        while (shared->passed <= i)
            sleep_ns(20000);
        await_child();
        MUST(sem_post(&shared->gate) ? errno : 0);
        while (shared->taken <= i)
            sleep_ns(20000);
    }
    int status;
    waitpid(pid, &status, 0);
    if (status != 0)
        die("child", ECHILD);
    struct lock_truth *lock = truth_of(NULL, &shared->lock), *gate = truth_of(NULL, &shared->gate);
    lock->acquisitions = 4 * (uint64_t)rounds;
    lock->contended = (uint64_t)rounds; // at least: the first half may contend as well
    lock->wait_min_ns = waited_ns;
    gate->acquisitions = gate->contended = (uint64_t)rounds;
    fact("child", (uint64_t)pid);
    fact("waited_ns", waited_ns);
    return finish("pshared");
}
