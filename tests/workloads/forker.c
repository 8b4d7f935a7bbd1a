// forker CHILDREN ITERATIONS [DELAY_MS]: the parent locks `shared_name` while it forks children that lock the same address in their
// own copy; one more child is forked while the parent holds the lock and releases its inherited copy, as atfork handlers
// do; and one program is spawned. The children check their own counts: they must be unharmed. Each begins DELAY_MS after it
// was forked.
#include "truth.h"
#include <spawn.h>
#include <sys/wait.h>

pthread_mutex_t shared_name = PTHREAD_MUTEX_INITIALIZER;

static struct lock_truth *truth;
static long iterations, delay_ms;
static volatile long counted;

NAMED static void parent_section(void)
{
    struct section section;
    ACQUIRE(truth, &section);
    counted++;
    RELEASE(truth, &section);
}

NAMED static void child_section(void)
{
    MUST(pthread_mutex_lock(&shared_name));
    counted++;
    MUST(pthread_mutex_unlock(&shared_name));
}

static void *child_thread(void *arg)
{
    for (long i = 0; i < iterations; i++)
        child_section();
    return arg;
}

static _Noreturn void child(void)
{
    pthread_t thread;
    counted = 0;
    sleep_ns((uint64_t)delay_ms * 1000000);
    MUST(pthread_create(&thread, NULL, child_thread, NULL));
    child_thread(NULL);
    MUST(pthread_join(thread, NULL));
    _exit(counted == 2 * iterations ? 0 : 1);
}

static void reap(pid_t pid)
{
    int status;
    if (waitpid(pid, &status, 0) != pid || status != 0)
        die("a child was harmed", ECHILD);
}

int main(int argc, char **argv)
{
    long children = number(argc, argv, 1, 5);
    iterations = number(argc, argv, 2, 500);
    delay_ms = number(argc, argv, 3, 0);
    truth = truth_of("shared_name", &shared_name);
    fact("children", (uint64_t)children);
    ready_and_go();
    for (long i = 0; i < children; i++) {
        pid_t pid = fork();
        if (pid == 0)
            child();
        for (long j = 0; j < iterations; j++)
            parent_section();
        reap(pid);
    }
    struct section section;
    ACQUIRE(truth, &section);
    pid_t pid = fork();
    if (pid == 0) {
        MUST(pthread_mutex_unlock(&shared_name));
        child();
    }
    RELEASE(truth, &section);
    reap(pid);
    char *arguments[] = {"true", NULL};
    MUST(posix_spawnp(&pid, "true", NULL, NULL, arguments, NULL));
    reap(pid);
    thread_done();
    return finish("forker");
}
