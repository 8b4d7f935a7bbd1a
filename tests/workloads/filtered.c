// filtered TIMES: a process that filters its system calls (seccomp), as sandboxed servers do, and is killed at any other than those it
// needs. TIMES sections by each of plain, tried and timed calls, and TIMES tries in vain; nobody else is there.
#include "truth.h"

#include <stddef.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>

pthread_mutex_t filtered_lock = PTHREAD_MUTEX_INITIALIZER;

static struct lock_truth *truth;

#define ALLOW(name)                                                  \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##name, 0, 1),           \
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static void filter_calls(void)
{
    static struct sock_filter calls[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        ALLOW(read),
        ALLOW(write),
        ALLOW(futex),
        ALLOW(getpid),
        ALLOW(gettid),
        ALLOW(brk),
        ALLOW(mmap),
        ALLOW(munmap),
        ALLOW(clock_gettime),
        ALLOW(rt_sigreturn),
        ALLOW(restart_syscall),
        ALLOW(getrandom),
        ALLOW(ioctl),
        ALLOW(exit_group),
        // glibc looks at what standard output is before it writes there, a terminal perhaps.
        ALLOW(newfstatat),
        ALLOW(fstat),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog program = {sizeof calls / sizeof *calls, calls};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
        die("prctl", errno);
}

NAMED static void lock_plainly(long times)
{
    for (long i = 0; i < times; i++) {
        struct section section;
        ACQUIRE(truth, &section);
        RELEASE(truth, &section);
    }
}

NAMED static void try_with_success(long times)
{
    for (long i = 0; i < times; i++) {
        struct section section;
        ACQUIRE_BY(truth, &section, pthread_mutex_trylock(&filtered_lock));
        RELEASE(truth, &section);
    }
}

NAMED static void fail_while_held(long times)
{
    struct section section;
    ACQUIRE(truth, &section);
    for (long i = 0; i < times; i++)
        FAIL_BY(truth, try_failures, EBUSY, pthread_mutex_trylock(&filtered_lock));
    RELEASE(truth, &section);
}

NAMED static void lock_in_time(long times)
{
    struct timespec deadline;
    clock_gettime(CLOCK_REALTIME, &deadline);
    deadline.tv_sec += 60;
    for (long i = 0; i < times; i++) {
        struct section section;
        ACQUIRE_BY(truth, &section, pthread_mutex_timedlock(&filtered_lock, &deadline));
        RELEASE(truth, &section);
    }
}

int main(int argc, char **argv)
{
    long times = number(argc, argv, 1, 200);
    truth = truth_of("filtered_lock", &filtered_lock);
    ready_and_go();
    // Not before it is observed: whoever observes cannot know.
    filter_calls();
    lock_plainly(times);
    try_with_success(times);
    fail_while_held(times);
    lock_in_time(times);
    fact("plain", (uint64_t)times + 1);
    thread_done();
    return finish("filtered");
}
