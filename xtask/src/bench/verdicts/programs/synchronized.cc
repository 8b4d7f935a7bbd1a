// A template of the program's own that runs a function under a lock, as folly::Synchronized does.
#include "program.h"

#include <mutex>
#include <map>

template <class T> class Synchronized {
public:
    template <class F> auto with(F function)
    {
        std::unique_lock<std::mutex> lock(mutex);
        return function(value);
    }

private:
    std::mutex mutex;
    T value;
};

struct Catalog {
    std::map<uint64_t, uint64_t> entries;
};

static Synchronized<Catalog> catalog;
static Synchronized<uint64_t> orders;
static struct service storage;

static LARGE uint64_t look_up(uint64_t key)
{
    return catalog.with([&](Catalog &catalog) { return catalog.entries[key % 100]++; });
}

static LARGE void reindex()
{
    if (cured)
        call_service(&storage);
    catalog.with([](Catalog &catalog) { // culprit
        if (!cured)
            call_service(&storage);
        catalog.entries.clear();
    });
}

static void *worker(void *arg)
{
    uint64_t state = (uint64_t)arg + 88172645463325252u;
    for (;;) {
        work(15000);
        look_up(pseudo_random(&state));
        orders.with([](uint64_t &count) { return count++; });
        did((long)arg);
    }
    return NULL;
}

static void *indexer(void *arg)
{
    for (;;) {
        reindex();
        sleep_us(500);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    start(argc, argv);
    connect_service(&storage, 2000);
    begin(indexer, NULL);
    begin_all(worker, 0, 3);
    return answer();
}
