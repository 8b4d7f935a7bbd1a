// initialised: 20 variables in functions, each initialised by the first call while another thread calls, too, and sleeps until that is done.
// Facts: waits, waited_ns (at least).
#include "contend.hh"
#include <utility>

static constexpr int VARIABLES = 20;
static long waited_ns;

struct Settings
{
    // Another thread wants them meanwhile.
    template <typename Want> [[gnu::noinline]] explicit Settings(Want want, std::thread &other)
    {
        static std::atomic<pid_t> waiter;
        waiter = 0;
        other = std::thread([want] {
            waiter = static_cast<pid_t>(syscall(SYS_gettid));
            want();
        });
        while (!sleeps_in_futex(waiter))
            std::this_thread::sleep_for(std::chrono::microseconds(100));
        auto from = std::chrono::steady_clock::now();
        std::this_thread::sleep_for(std::chrono::milliseconds(3));
        waited_ns += std::chrono::nanoseconds(std::chrono::steady_clock::now() - from).count();
    }
};

template <int N> [[gnu::noinline]] static Settings &settings(std::thread &other)
{
    static Settings all([&other] { settings<N>(other); }, other);
    return all;
}

template <int... N> static void initialise(std::integer_sequence<int, N...>)
{
    std::thread others[VARIABLES];
    ((settings<N>(others[N]), others[N].join()), ...);
}

int main()
{
    if (!begins())
        return 1;
    initialise(std::make_integer_sequence<int, VARIABLES>{});
    std::printf("{\"workload\":\"initialised\",\"pid\":%d,\"locks\":[],\"threads\":[],\"facts\":{\"waits\":%d,\"waited_ns\":%ld}}\n",
                getpid(), VARIABLES, waited_ns);
    return 0;
}
