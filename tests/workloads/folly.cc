// folly ROUNDS: a lock in whose slow path threads sleep in a function named as folly's SharedMutex names it; nothing else is folly's. The
// main thread holds it ROUNDS times until another one sleeps for it.
// Facts: slept (how often), slept_ns (for how long, at least).
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <linux/futex.h>
#include <string>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

namespace folly
{
struct WaitForever {
};

template <bool ReaderPriority> struct SharedMutexImpl {
    std::atomic<unsigned> state{0};

    template <typename WaitContext> [[gnu::noipa]] bool futexWaitForZeroBits(unsigned &seen, WaitContext &)
    {
        syscall(SYS_futex, &state, FUTEX_WAIT_PRIVATE, 2u, nullptr, nullptr, 0);
        return (seen = state) == 0;
    }

    void lock()
    {
        unsigned seen = 0;
        if (state.compare_exchange_strong(seen, 1))
            return;
        WaitForever context;
        while (state.exchange(2) != 0)
            futexWaitForZeroBits(seen, context);
    }

    void unlock()
    {
        if (state.exchange(0) == 2)
            syscall(SYS_futex, &state, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
    }
};
} // namespace folly

folly::SharedMutexImpl<false> table_lock;

static bool sleeps_in_futex(pid_t tid)
{
    std::string call;
    std::ifstream("/proc/self/task/" + std::to_string(tid) + "/syscall") >> call;
    return tid != 0 && call == std::to_string(SYS_futex);
}

int main(int argc, char **argv)
{
    const long rounds = argc > 1 ? std::atol(argv[1]) : 20;
    std::puts("ready");
    std::fflush(stdout);
    char go;
    if (read(STDIN_FILENO, &go, 1) != 1)
        return 70;
    std::chrono::nanoseconds slept{0};
    for (long i = 0; i < rounds; i++) {
        std::atomic<pid_t> waiter{0};
        table_lock.lock();
        std::thread other([&] {
            waiter = static_cast<pid_t>(syscall(SYS_gettid));
            table_lock.lock();
            table_lock.unlock();
        });
        while (!sleeps_in_futex(waiter))
            std::this_thread::sleep_for(std::chrono::microseconds(100));
        auto from = std::chrono::steady_clock::now();
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        slept += std::chrono::steady_clock::now() - from;
        table_lock.unlock();
        other.join();
    }
    std::printf("{\"workload\":\"folly\",\"pid\":%d,\"locks\":[],\"threads\":[],"
                "\"facts\":{\"slept\":%ld,\"slept_ns\":%ld}}\n",
                getpid(), rounds, static_cast<long>(slept.count()));
    return 0;
}
