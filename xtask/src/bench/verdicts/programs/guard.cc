// A container template that locks by std::lock_guard; which of its methods holds the lock for long is inlined or not as the
// compiler likes.
#include "program.h"

#include <algorithm>
#include <mutex>
#include <vector>

template <class T> class Registry {
public:
    bool find(const T &key)
    {
        std::lock_guard<std::mutex> guard(mutex);
        return std::binary_search(sorted.begin(), sorted.end(), key);
    }

    void add(const T &key)
    {
        std::lock_guard<std::mutex> guard(mutex);
        added.push_back(key);
    }

    void rebuild()
    {
        std::vector<T> all;
        {
            std::lock_guard<std::mutex> guard(mutex); // culprit
            if (added.size() > 1000)
                added.resize(1000);
            all = added;
            if (!cured)
                sort(all);
            sorted.swap(all);
        } // culprit
        if (cured)
            sort(all);
    }

private:
    static void sort(std::vector<T> &all)
    {
        std::sort(all.begin(), all.end());
        work(2000000);
    }

    std::mutex mutex;
    std::vector<T> added, sorted;
};

static Registry<uint64_t> registry;
static std::mutex names_mutex;
static uint64_t names;

static void *worker(void *arg)
{
    uint64_t state = (uint64_t)arg + 88172645463325252u;
    for (;;) {
        uint64_t key = pseudo_random(&state);
        work(15000);
        registry.find(key);
        if (key % 8 == 0)
            registry.add(key);
        {
            std::lock_guard<std::mutex> guard(names_mutex);
            names++;
        }
        did((long)arg);
    }
    return NULL;
}

static void *rebuilder(void *arg)
{
    for (;;) {
        registry.rebuild();
        sleep_us(300);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    start(argc, argv);
    begin(rebuilder, NULL);
    begin_all(worker, 0, 3);
    return answer();
}
