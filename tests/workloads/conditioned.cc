// conditioned ROUNDS: a read-write lock that is made of a mutex and a condition variable, as in libraries that have no other; a reader waits
// ROUNDS times for its writer. Facts: waited_ns (for how long, at least).
#include "contend.hh"
#include <condition_variable>
#include <cstdlib>
#include <mutex>

class shared_lock
{
    std::mutex mutex;
    std::condition_variable changed;
    int readers = 0;
    bool written = false;

public:
    [[gnu::noinline]] void lock()
    {
        std::unique_lock<std::mutex> held(mutex);
        changed.wait(held, [this] { return readers == 0 && !written; });
        written = true;
    }
    [[gnu::noinline]] void unlock()
    {
        std::lock_guard<std::mutex> held(mutex);
        written = false;
        changed.notify_all();
    }
    [[gnu::always_inline]] void lock_shared()
    {
        std::unique_lock<std::mutex> held(mutex);
        changed.wait(held, [this] { return !written; });
        readers++;
    }
    [[gnu::noinline]] void unlock_shared()
    {
        std::lock_guard<std::mutex> held(mutex);
        readers--;
        changed.notify_all();
    }
};

static shared_lock table_lock;

[[gnu::noinline]] static void read_table()
{
    table_lock.lock_shared();
    table_lock.unlock_shared();
}

int main(int argc, char **argv)
{
    long rounds = argc > 1 ? std::atol(argv[1]) : 200, waited_ns = 0;
    if (!begins())
        return 1;
    for (long i = 0; i < rounds; i++)
        waited_ns += contend([] { table_lock.lock(); }, [] { table_lock.unlock(); }, read_table);
    std::printf("{\"workload\":\"conditioned\",\"pid\":%d,\"locks\":[],\"threads\":[],\"facts\":{\"waited_ns\":%ld}}\n",
                getpid(), waited_ns);
    return 0;
}
