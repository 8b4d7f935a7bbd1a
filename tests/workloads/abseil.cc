// abseil ROUNDS: abseil's Mutex, waited for ROUNDS times in each of two ways: by a writer, and by a reader.
// Facts: account_lock (how often it was waited for), account_lock_ns (for how long, at least).
#include "contend.hh"
#include <absl/synchronization/mutex.h>
#include <cstdlib>

absl::Mutex account_lock;

int main(int argc, char **argv)
{
    const long rounds = argc > 1 ? std::atol(argv[1]) : 20;
    if (!begins())
        return 70;
    long waited_ns = 0;
    auto lock = [] { account_lock.Lock(); };
    auto unlock = [] { account_lock.Unlock(); };
    for (long i = 0; i < rounds; i++) {
        waited_ns += contend(lock, unlock, [] { absl::MutexLock lock(&account_lock); });
        waited_ns += contend(lock, unlock, [] { absl::ReaderMutexLock lock(&account_lock); });
    }
    std::printf("{\"workload\":\"abseil\",\"pid\":%d,\"locks\":[],\"threads\":[],"
                "\"facts\":{\"account_lock\":%ld,\"account_lock_ns\":%ld}}\n",
                getpid(), 2 * rounds, waited_ns);
    return 0;
}
