// Contention by design, for locks of all kinds: the main thread holds one until another thread sleeps for it, which that thread's system call tells.
#ifndef CONTEND_HH
#define CONTEND_HH

#include <atomic>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <string>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

static inline bool sleeps_in_futex(pid_t tid)
{
    std::string call;
    std::ifstream("/proc/self/task/" + std::to_string(tid) + "/syscall") >> call;
    return tid != 0 && call == std::to_string(SYS_futex);
}

// Holds a lock for a while once a thread that wants it in this way sleeps. Returns for how long, ns.
template <typename Lock, typename Unlock, typename Want>
[[gnu::noinline]] static long contend(Lock lock, Unlock unlock, Want want)
{
    using steady = std::chrono::steady_clock;
    std::atomic<pid_t> waiter{0};
    lock();
    std::thread other([&] {
        waiter = static_cast<pid_t>(syscall(SYS_gettid));
        want();
    });
    while (!sleeps_in_futex(waiter))
        std::this_thread::sleep_for(std::chrono::microseconds(100));
    auto from = steady::now();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    auto waited = steady::now() - from;
    unlock();
    other.join();
    return std::chrono::duration_cast<std::chrono::nanoseconds>(waited).count();
}

// Waits for the signal to begin.
static inline bool begins()
{
    std::puts("ready");
    std::fflush(stdout);
    char go;
    return read(STDIN_FILENO, &go, 1) == 1;
}

#endif
