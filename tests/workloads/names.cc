// names: std::mutex in each place that C++ has for one. Prints the names that they should get as `truth.h` describes.
#include <cstdint>
#include <cstdio>
#include <memory>
#include <mutex>
#include <unistd.h>
#include <vector>

namespace store {
struct Guarded {
    virtual ~Guarded() {}
    std::mutex lock;
};
struct Shard : Guarded {
    long hits = 0;
    static std::mutex shared;
};
std::mutex Shard::shared;
template <typename T>
struct Pool {
    T items[4];
};
Pool<Shard> pool;
namespace {
std::mutex hidden;
}

struct Session {
    long id = 0;
    struct {
        int length = 0;
        std::mutex guard;
    } queue;
    static const int line = __LINE__ + 3;
    __attribute__((noipa)) void work()
    {
        queue.guard.lock();
        queue.length++;
        queue.guard.unlock();
    }
};

__attribute__((noipa)) void use(std::mutex &mutex)
{
    mutex.lock();
    mutex.unlock();
}

__attribute__((noipa)) std::mutex &local()
{
    static std::mutex once;
    return once;
}
}

static void print(const char *name, const void *lock, const char *end)
{
    std::printf("{\"symbol\":\"%s\",\"addr\":\"0x%jx\",\"acquisitions\":20,\"contended\":0,\"try_failures\":0,\"timeouts\":0,"
                "\"errors\":0,\"call_ns\":0,\"hold_ns\":0,\"span_ns\":0,\"wait_min_ns\":0}%s",
                name, (uintmax_t)(uintptr_t)lock, end);
}

int main()
{
    char byte;
    std::puts("ready");
    std::fflush(stdout);
    if (read(0, &byte, 1) != 1)
        return 70;
    auto first = std::make_unique<store::Session>(), second = std::make_unique<store::Session>();
    struct {
        const char *name;
        std::mutex &mutex;
    } others[] = {
        {"store::pool.items[2].lock", store::pool.items[2].lock},
        {"store::Shard::shared", store::Shard::shared},
        {"store::(anonymous namespace)::hidden", store::hidden},
        {"store::local()::once", store::local()},
    };
    for (int i = 0; i < 20; i++) {
        first->work();
        second->work();
        for (auto &other : others)
            store::use(other.mutex);
    }
    std::printf("{\"workload\":\"names\",\"pid\":%d,\"threads\":[],\"facts\":{},\"locks\":[", getpid());
    for (auto &other : others)
        print(other.name, &other.mutex, ",");
    char name[128];
    std::snprintf(name, sizeof name, "Session.queue.guard in store::Session::work (names.cc:%d)", store::Session::line);
    print(name, &first->queue.guard, ",");
    std::snprintf(name, sizeof name, "Session.queue.guard in store::Session::work (names.cc:%d) #2", store::Session::line);
    print(name, &second->queue.guard, "]}\n");
}
