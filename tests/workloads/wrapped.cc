// wrapped: four threads take `store_lock` by a method of its class, even ones in put, odd ones in take. Both have data of their
// own. When stdin is closed it checks what the sections computed, prints "sum ok", and exits with 0.
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <pthread.h>
#include <thread>
#include <unistd.h>
#include <vector>

#define NAMED __attribute__((noipa))

class StoreLock {
public:
    NAMED void acquire() { must(pthread_mutex_lock(&mutex)); }
    NAMED void release() { must(pthread_mutex_unlock(&mutex)); }

private:
    // So that the methods call, and do not jump.
    static void must(int error)
    {
        if (error)
            std::abort();
    }

    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
};

StoreLock store_lock;
alignas(64) uint64_t puts_made;
alignas(64) uint64_t takes_made;
static std::atomic<uint64_t> done;
static std::atomic<bool> stop;

static void nap(long ns)
{
    timespec time = {0, ns};
    nanosleep(&time, nullptr);
}

NAMED static void put()
{
    store_lock.acquire();
    puts_made++;
    nap(100000);
    puts_made++;
    store_lock.release();
}

NAMED static void take()
{
    store_lock.acquire();
    takes_made++;
    nap(100000);
    takes_made++;
    store_lock.release();
}

int main()
{
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; i++)
        threads.emplace_back([i] {
            while (!stop) {
                i % 2 ? take() : put();
                done++;
                nap(50000);
            }
        });
    std::puts("ready");
    std::fflush(stdout);
    char byte;
    while (read(STDIN_FILENO, &byte, 1) > 0)
        ;
    stop = true;
    for (auto &thread : threads)
        thread.join();
    bool ok = puts_made + takes_made == 2 * done;
    std::puts(ok ? "sum ok" : "sum wrong");
    return ok ? 0 : 71;
}
