// abseil ROUNDS: abseil's Mutex, waited for ROUNDS times in each of two ways: by a writer, and by a reader. Each time the main
// thread holds it until the other one sleeps, which that thread's system call tells.
// Facts: account_lock (how often it was waited for), account_lock_ns (for how long, at least).
#include <absl/synchronization/mutex.h>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

using steady = std::chrono::steady_clock;

absl::Mutex account_lock;
static std::atomic<pid_t> waiter{0};

static bool sleeps_in_futex(pid_t tid)
{
    std::string call;
    std::ifstream("/proc/self/task/" + std::to_string(tid) + "/syscall") >> call;
    return tid != 0 && call == std::to_string(SYS_futex);
}

// Holds the lock for a while once a thread that wants it in this way sleeps. Returns for how long.
template <typename Want>
static long contend(Want want)
{
    waiter = 0;
    account_lock.Lock();
    std::thread other([&] {
        waiter = static_cast<pid_t>(syscall(SYS_gettid));
        want();
    });
    while (!sleeps_in_futex(waiter))
        std::this_thread::sleep_for(std::chrono::microseconds(100));
    auto from = steady::now();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    auto waited = steady::now() - from;
    account_lock.Unlock();
    other.join();
    return std::chrono::duration_cast<std::chrono::nanoseconds>(waited).count();
}

int main(int argc, char **argv)
{
    const long rounds = argc > 1 ? std::atol(argv[1]) : 20;
    std::puts("ready");
    std::fflush(stdout);
    char go;
    if (read(STDIN_FILENO, &go, 1) != 1)
        return 70;
    long waited_ns = 0;
    for (long i = 0; i < rounds; i++) {
        waited_ns += contend([] { absl::MutexLock lock(&account_lock); });
        waited_ns += contend([] { absl::ReaderMutexLock lock(&account_lock); });
    }
    std::printf("{\"workload\":\"abseil\",\"pid\":%d,\"locks\":[],\"threads\":[],"
                "\"facts\":{\"account_lock\":%ld,\"account_lock_ns\":%ld}}\n",
                getpid(), 2 * rounds, waited_ns);
    return 0;
}
