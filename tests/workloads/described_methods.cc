// described_methods ROUNDS FREE: a lock that is a class template of the program's own, taken FREE times while it is free, and ROUNDS times held
// until another thread spins for it.
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <sched.h>
#include <thread>
#include <time.h>
#include <unistd.h>

namespace db {
template <typename T> class Latch {
public:
    __attribute__((noipa)) void lock()
    {
        if (!taken.exchange(1))
            return;
        waiting++;
        while (taken.exchange(1))
            sched_yield();
        waiting--;
    }

    __attribute__((noipa)) void unlock() { taken = 0; }

    std::atomic<uint32_t> taken{0};
    std::atomic<uint32_t> waiting{0};
    T guarded{};
};
} // namespace db

db::Latch<long> latch;

int main(int argc, char **argv)
{
    long rounds = argc > 1 ? atol(argv[1]) : 20, free = argc > 2 ? atol(argv[2]) : 500;
    puts("ready");
    fflush(stdout);
    if (getchar() == EOF)
        return 1;
    for (long i = 0; i < free; i++) {
        latch.lock();
        latch.guarded++;
        latch.unlock();
    }
    for (long i = 0; i < rounds; i++) {
        latch.lock();
        std::thread waiter([] {
            latch.lock();
            latch.unlock();
        });
        while (!latch.waiting)
            sched_yield();
        latch.unlock();
        waiter.join();
    }
    printf("{\"workload\":\"described_methods\",\"pid\":%d,\"locks\":[{\"symbol\":\"latch\",\"addr\":\"%p\",\"acquisitions\":%ld,\"contended\":%ld,"
           "\"try_failures\":0,\"timeouts\":0,\"errors\":0,\"call_ns\":0,\"hold_ns\":0,\"span_ns\":0,\"wait_min_ns\":0}],"
           "\"threads\":[],\"facts\":{}}\n",
        getpid(), (void *)&latch, free + 2 * rounds, rounds);
    return 0;
}
