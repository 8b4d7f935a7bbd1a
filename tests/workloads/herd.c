// herd [PROCESSES] [SECONDS] [RATE]: that many processes, each with a `herd_lock` of its own. The first is hot: it takes its
// lock as fast as it can; every other one takes it RATE times a second, evenly, and exactly RATE * SECONDS times, and uses
// about 3 % of a processor otherwise.
//
// Facts: hot (a pid), and for every process, by its pid, of_PID: the acquisitions it made.
#include "truth.h"
#include "holds.h"
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define MAX_PROCESSES 24
#define TICK_NS 10000000

pthread_mutex_t herd_lock = PTHREAD_MUTEX_INITIALIZER;

static struct {
    _Atomic bool go;
    _Atomic int ready;
    _Atomic uint64_t made[MAX_PROCESSES];
} *shared;

NAMED static void herd_section(void)
{
    MUST(pthread_mutex_lock(&herd_lock));
    MUST(pthread_mutex_unlock(&herd_lock));
}

static uint64_t be_hot(uint64_t duration_ns)
{
    uint64_t made = 0;
    for (uint64_t end = now_ns() + duration_ns; now_ns() < end;) {
        for (int i = 0; i < 100; i++, made++)
            herd_section();
    }
    return made;
}

static uint64_t be_moderate(uint64_t duration_ns, uint64_t rate)
{
    uint64_t made = 0, total = rate * (duration_ns / 1000000000), begin = now_ns();
    for (uint64_t tick = 1; made < total; tick++) {
        uint64_t due = tick * TICK_NS * rate / 1000000000;
        for (; made < due && made < total; made++)
            herd_section();
        for (uint64_t end = own_cpu_ns() + TICK_NS * 3 / 100; own_cpu_ns() < end;)
            ;
        uint64_t now = now_ns(), next = begin + tick * TICK_NS;
        if (now < next)
            sleep_ns(next - now);
    }
    return made;
}

static void animal(long index, uint64_t duration_ns, uint64_t rate)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_NAME, index ? "moderate" : "hot");
    keep_company();
    shared->ready++;
    while (!shared->go)
        sleep_ns(1000000);
    shared->made[index] = index ? be_moderate(duration_ns, rate) : be_hot(duration_ns);
    _exit(0);
}

int main(int argc, char **argv)
{
    long processes = number(argc, argv, 1, 20);
    uint64_t duration_ns = (uint64_t)number(argc, argv, 2, 3) * 1000000000;
    uint64_t rate = (uint64_t)number(argc, argv, 3, 200);
    if (processes < 1 || processes > MAX_PROCESSES)
        die("herd", EINVAL);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        die("mmap", errno);
    pid_t pids[MAX_PROCESSES];
    for (long i = 0; i < processes; i++) {
        pids[i] = fork();
        if (pids[i] == -1)
            die("fork", errno);
        if (pids[i] == 0)
            animal(i, duration_ns, rate);
    }
    while (shared->ready < processes)
        sleep_ns(1000000);
    ready_and_go();
    shared->go = true;
    for (long i = 0; i < processes; i++) {
        int status;
        if (waitpid(pids[i], &status, 0) != pids[i] || status != 0)
            die("a process of the herd", ECHILD);
    }
    fact("hot", (uint64_t)pids[0]);
    for (long i = 0; i < processes; i++) {
        char name[32];
        snprintf(name, sizeof name, "of_%d", pids[i]);
        fact(name, shared->made[i]);
    }
    return finish("herd");
}
