// forked HOW [MEASURE_MS]: an observed parent starts children while it is idle (or, with HOW `busy`, while it locks all the time), and
// they lock without pause. Fact `bare_ps` is what a pair takes in a child from before the observation, `child_ps` in one
// that was forked meanwhile, from 100 ms after its fork on: CPU time, ps. `first_ps` is what it took until then, and `first_cpu_ns` all the
// CPU time of that.
// HOW `crowd`: many children at once; facts are of all of them together, `child_ps` of the slowest.
// HOW: fork, busy, clone (the system call), grand (a child's child), vfork and spawn (which exec), threads (a child with two).
#include "truth.h"
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

// What is measured at most: a child from before, and those that are forked meanwhile.
#define RESULTS 33

static pthread_mutex_t shared_name = PTHREAD_MUTEX_INITIALIZER;

struct result {
    _Atomic uint64_t first_ps, first_cpu_ns, then_ps;
    _Atomic int go;
};

static struct result *results;
static uint64_t measure_ns;
static _Atomic int stop;

static uint64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

NAMED static uint64_t pairs_for(uint64_t ns)
{
    uint64_t pairs = 0, began = cpu_ns(), until = now_ns() + ns;
    do {
        for (int i = 0; i < 100; i++) {
            MUST(pthread_mutex_lock(&shared_name));
            MUST(pthread_mutex_unlock(&shared_name));
        }
        pairs += 100;
    } while (now_ns() < until);
    return (cpu_ns() - began) * 1000 / pairs;
}

static void *idle(void *arg)
{
    for (;;)
        pause();
    return arg;
}

static void measure(struct result *result)
{
    // The C library locks without atomic instructions as long as a process, and what it was forked from, had a single thread.
    pthread_t other;
    MUST(pthread_create(&other, NULL, idle, NULL));
    uint64_t began = cpu_ns();
    result->first_ps = pairs_for(100000000);
    result->first_cpu_ns = cpu_ns() - began;
    result->then_ps = pairs_for(measure_ns);
}

static void *measuring(void *arg)
{
    measure(&results[1]);
    return arg;
}

static void *working(void *arg)
{
    static pthread_mutex_t busy_lock = PTHREAD_MUTEX_INITIALIZER;
    while (!stop) {
        MUST(pthread_mutex_lock(&busy_lock));
        MUST(pthread_mutex_unlock(&busy_lock));
    }
    return arg;
}

static void reap(pid_t pid)
{
    int status;
    if (waitpid(pid, &status, 0) != pid || status != 0)
        die("a child was harmed", ECHILD);
}

static void crowd(void)
{
    pid_t all[RESULTS];
    for (int i = 1; i < RESULTS; i++) {
        all[i] = fork();
        if (all[i] == 0) {
            measure(&results[i]);
            _exit(0);
        }
    }
    for (int i = 1; i < RESULTS; i++)
        reap(all[i]);
}

static void start(const char *how, char **argv)
{
    char shared[32];
    snprintf(shared, sizeof shared, "%" PRIu64, measure_ns / 1000000);
    char *arguments[] = {argv[0], "exec", shared, NULL};
    pid_t pid;
    if (!strcmp(how, "spawn")) {
        MUST(posix_spawn(&pid, "/proc/self/exe", NULL, NULL, arguments, environ));
    } else if (!strcmp(how, "vfork")) {
        pid = vfork();
        if (pid == 0) {
            execv("/proc/self/exe", arguments);
            _exit(71);
        }
    } else if (!strcmp(how, "clone")) {
        pid = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
    } else {
        pid = fork();
    }
    if (pid == 0) {
        if (!strcmp(how, "grand")) {
            pid_t grand = fork();
            if (grand != 0) {
                reap(grand);
                _exit(0);
            }
        }
        if (!strcmp(how, "threads")) {
            pthread_t thread;
            MUST(pthread_create(&thread, NULL, measuring, NULL));
            MUST(pthread_join(thread, NULL));
        } else {
            measure(&results[1]);
        }
        _exit(0);
    }
    reap(pid);
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "fork";
    measure_ns = (uint64_t)number(argc, argv, 2, 1000) * 1000000;
    bool execed = !strcmp(how, "exec");
    // A file without a name, open at the same number after exec.
    int file = execed ? 99 : memfd_create("results", 0);
    if (!execed && (dup2(file, 99) != 99 || ftruncate(99, sizeof(struct result[RESULTS]))))
        die("memfd", errno);
    results = mmap(NULL, sizeof(struct result[RESULTS]), PROT_READ | PROT_WRITE, MAP_SHARED, 99, 0);
    if (results == MAP_FAILED)
        die("mmap", errno);
    if (execed) {
        measure(&results[1]);
        return 0;
    }
    pid_t bare = fork();
    if (bare == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        while (!results[0].go)
            sleep_ns(1000000);
        measure(&results[0]);
        _exit(0);
    }
    ready_and_go();
    pthread_t worker;
    bool busy = !strcmp(how, "busy");
    if (busy)
        MUST(pthread_create(&worker, NULL, working, NULL));
    sleep_ns(300000000);
    if (!strcmp(how, "crowd"))
        crowd();
    else
        start(how, argv);
    stop = 1;
    if (busy)
        MUST(pthread_join(worker, NULL));
    results[0].go = 1;
    reap(bare);
    fact("bare_ps", results[0].then_ps);
    uint64_t slowest = 0, first_ns = 0, first_pairs = 0;
    for (int i = 1; i < RESULTS && results[i].first_ps; i++) {
        if (results[i].then_ps > slowest)
            slowest = results[i].then_ps;
        first_ns += results[i].first_cpu_ns;
        first_pairs += results[i].first_cpu_ns * 1000 / results[i].first_ps;
    }
    fact("child_ps", slowest);
    fact("first_ps", first_pairs ? first_ns * 1000 / first_pairs : 0);
    fact("first_cpu_ns", first_ns);
    return finish("forked");
}
