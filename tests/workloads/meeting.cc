// meeting ROUNDS: three threads wait at a std::barrier in each round for a fourth one, which sleeps before it comes. Facts: waited_ns, by the
// threads' own clocks.
#include "contend.hh"
#include <barrier>
#include <cstdlib>

static constexpr int THREADS = 4;
static std::barrier<> meeting(THREADS);
static std::atomic<long> waited_ns;
static long rounds;

[[gnu::noinline]] static void come_late()
{
    for (long i = 0; i < rounds; i++) {
        std::this_thread::sleep_for(std::chrono::milliseconds(200));
        meeting.arrive_and_wait();
    }
}

[[gnu::noinline]] static void come_early()
{
    for (long i = 0; i < rounds; i++) {
        auto from = std::chrono::steady_clock::now();
        meeting.arrive_and_wait();
        waited_ns += std::chrono::nanoseconds(std::chrono::steady_clock::now() - from).count();
    }
}

int main(int argc, char **argv)
{
    rounds = argc > 1 ? std::atol(argv[1]) : 12;
    if (!begins())
        return 1;
    std::thread threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        threads[i] = std::thread(i == 0 ? come_late : come_early);
    for (auto &thread : threads)
        thread.join();
    std::printf("{\"workload\":\"meeting\",\"pid\":%d,\"locks\":[],\"threads\":[],\"facts\":{\"waited_ns\":%ld}}\n", getpid(),
                waited_ns.load());
    return 0;
}
