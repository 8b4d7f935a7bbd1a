// cpp THREADS ROUNDS: the locks of C++'s standard library, each counted by itself.
//   plain        std::mutex: lock, try_lock
//   nested       std::recursive_mutex, taken twice: the inner one is none of its own
//   table        std::shared_mutex, read and written
//   timed        std::timed_mutex: try_lock_for, also in vain
//   queue_lock   std::mutex with a std::condition_variable: one thread waits ROUNDS times for another, and once in vain
//   once         std::call_once, by all threads, which wait for it while it runs
// Facts: idle_ns (waited for conditions, at least), once_ns (how long the initialiser ran).
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include "blocked.h"

using namespace std::chrono_literals;
using steady = std::chrono::steady_clock;

std::mutex plain, queue_lock;
std::recursive_mutex nested;
std::shared_mutex table;
std::timed_mutex timed;
std::once_flag once;
std::condition_variable ready;

struct Truth {
    std::atomic<long> acquisitions{0}, contended{0}, try_failures{0}, timeouts{0};
};

static Truth of_plain, of_nested, of_table, of_timed, of_queue, of_once;
static long queued = 0;
static std::atomic<long> idle_ns{0}, once_ns{0}, arrived{0};
static std::vector<std::atomic<pid_t>> workers;

static long since(steady::time_point from)
{
    return std::chrono::duration_cast<std::chrono::nanoseconds>(steady::now() - from).count();
}

static pid_t my_tid()
{
    return static_cast<pid_t>(syscall(SYS_gettid));
}

static void together(long threads)
{
    workers[arrived++] = my_tid();
    while (arrived < threads)
        std::this_thread::yield();
}

static void await_all_others()
{
    for (auto &worker : workers)
        while (worker != my_tid() && (worker == 0 || !blocked_on(worker, &once, sizeof once)))
            std::this_thread::sleep_for(100us);
}

static void work(long threads, long rounds)
{
    together(threads);
    std::call_once(once, [] {
        await_all_others();
        auto from = steady::now();
        std::this_thread::sleep_for(20ms);
        once_ns = since(from);
    });
    for (long i = 0; i < rounds; i++) {
        {
            std::lock_guard guard(plain);
            of_plain.acquisitions++;
        }
        if (plain.try_lock()) {
            of_plain.acquisitions++;
            plain.unlock();
        } else {
            of_plain.try_failures++;
        }
        {
            std::lock_guard outer(nested);
            std::lock_guard inner(nested);
            of_nested.acquisitions++;
        }
        if (i % 4 == 0) {
            std::unique_lock writer(table);
            of_table.acquisitions++;
        } else {
            std::shared_lock reader(table);
            of_table.acquisitions++;
        }
        if (timed.try_lock_for(10s)) {
            of_timed.acquisitions++;
            timed.unlock();
        }
    }
}

// The lock is held by another thread all the time: fails for certain.
static void in_vain()
{
    std::lock_guard held(timed);
    std::lock_guard held_too(plain);
    of_timed.acquisitions++;
    of_plain.acquisitions++;
    std::thread([] {
        if (!timed.try_lock_for(2ms))
            of_timed.timeouts++;
        if (!plain.try_lock())
            of_plain.try_failures++;
    }).join();
}

static void consume(long rounds)
{
    std::unique_lock lock(queue_lock);
    of_queue.acquisitions++;
    auto wait = [&](auto call) {
        auto from = steady::now();
        call();
        idle_ns += since(from);
        of_queue.acquisitions++;
    };
    for (long i = 0; i < rounds; i++)
        while (queued <= i)
            wait([&] { ready.wait(lock); });
    // Nobody will.
    wait([&] { ready.wait_for(lock, 2ms); });
}

static void produce(long rounds)
{
    for (long i = 0; i < rounds; i++) {
        std::this_thread::sleep_for(500us);
        std::lock_guard lock(queue_lock);
        of_queue.acquisitions++;
        queued++;
        ready.notify_one();
    }
}

static const void *address(const void *object)
{
    return object;
}

int main(int argc, char **argv)
{
    const long threads = argc > 1 ? std::atol(argv[1]) : 4, rounds = argc > 2 ? std::atol(argv[2]) : 100;
    std::puts("ready");
    std::fflush(stdout);
    char go;
    if (read(STDIN_FILENO, &go, 1) != 1)
        return 70;
    workers = std::vector<std::atomic<pid_t>>(threads);
    std::vector<std::thread> all;
    for (long i = 0; i < threads; i++)
        all.emplace_back(work, threads, rounds);
    for (auto &thread : all)
        thread.join();
    of_once.acquisitions = threads;
    of_once.contended = threads - 1;
    in_vain();
    std::thread consumer(consume, rounds);
    produce(rounds);
    consumer.join();
    std::string locks;
    auto tell = [&](const char *name, const void *object, Truth &truth) {
        char text[512];
        std::snprintf(text, sizeof text,
                      "%s{\"symbol\":\"%s\",\"addr\":\"%p\",\"acquisitions\":%ld,\"contended\":%ld,\"try_failures\":%ld,"
                      "\"timeouts\":%ld,\"errors\":0,\"call_ns\":0,\"hold_ns\":0,\"span_ns\":0,\"wait_min_ns\":0}",
                      locks.empty() ? "" : ",", name, object, truth.acquisitions.load(), truth.contended.load(),
                      truth.try_failures.load(), truth.timeouts.load());
        locks += text;
    };
    tell("plain", address(&plain), of_plain);
    tell("nested", address(&nested), of_nested);
    tell("table", address(&table), of_table);
    tell("timed", address(&timed), of_timed);
    tell("queue_lock", address(&queue_lock), of_queue);
    tell("once", address(&once), of_once);
    std::printf("{\"workload\":\"cpp\",\"pid\":%d,\"locks\":[%s],\"threads\":[],\"facts\":{\"idle_ns\":%ld,\"once_ns\":%ld}}\n",
                getpid(), locks.c_str(), idle_ns.load(), once_ns.load());
    return 0;
}
