// deep_cpp ROUNDS: as deep, in C++: a victim waits for `cpp_lock` behind a virtual call, a lambda in a std::function, a
// function with a handler for exceptions, and objects whose destructors run while unwinding.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#define NAMED __attribute__((noipa))

std::mutex cpp_lock;
static std::atomic<long> turn{0}, asking{0}, done{0};
static volatile long sink;

NAMED long cpp_section(long n)
{
    std::lock_guard<std::mutex> guard(cpp_lock);
    return n + 1;
}

struct Shape {
    virtual ~Shape() = default;
    virtual long area(const std::string &name) = 0;
};

struct Square : Shape {
    NAMED long area(const std::string &name) override
    {
        std::vector<long> sizes(name.size() + 3, 1);
        return cpp_section(sizes.back()) + static_cast<long>(sizes.size());
    }
};

NAMED long guarded(Shape &shape, long n)
{
    try {
        std::string name = "square " + std::to_string(n);
        long result = shape.area(name);
        if (result < 0)
            throw std::runtime_error(name);
        return result + 1;
    } catch (const std::exception &error) {
        return 0;
    }
}

NAMED long called_back(const std::function<long(long)> &call, long n)
{
    return call(n) + 1;
}

NAMED long victim_chain(long n)
{
    Square square;
    return called_back([&square](long m) { return guarded(square, m) + 1; }, n) + 1;
}

int main(int argc, char **argv)
{
    const long rounds = argc > 1 ? std::atol(argv[1]) : 10;
    std::puts("ready");
    std::fflush(stdout);
    char go;
    if (!std::getenv("GO") && read(STDIN_FILENO, &go, 1) != 1)
        return 70;
    std::thread victim([rounds] {
        for (long n = 1; n <= rounds; n++) {
            while (turn < n)
                std::this_thread::yield();
            asking = n;
            sink = victim_chain(n);
            done = n;
        }
    });
    for (long n = 1; n <= rounds; n++) {
        {
            std::lock_guard<std::mutex> guard(cpp_lock);
            turn = n;
            while (asking < n)
                std::this_thread::yield();
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
        }
        while (done < n)
            std::this_thread::yield();
    }
    victim.join();
    std::printf("{\"workload\":\"deep_cpp\",\"pid\":%d,\"locks\":[],\"threads\":[],\"facts\":{\"rounds\":%ld}}\n", getpid(),
                rounds);
    return 0;
}
