// toolkits ROUNDS: the mutexes of GLib and of Qt, each waited for ROUNDS times.
// Both are declared here as far as they are needed: with the libraries alone, and without all that their headers need.
// Facts: glib_lock and qt_lock (how often they were waited for), glib_lock_ns and qt_lock_ns (for how long, at least).
#include "contend.hh"
#include <cstdlib>

extern "C" {
typedef union {
    void *p;
    unsigned i[2];
} GMutex;
void g_mutex_lock(GMutex *);
void g_mutex_unlock(GMutex *);
}

class QMutexPrivate;

// Free ones are taken and given back by the program's own instructions, as with Qt's header.
class QBasicMutex
{
    std::atomic<QMutexPrivate *> d_ptr{nullptr};
    void lockInternal() noexcept;
    void unlockInternal() noexcept;
    static QMutexPrivate *locked() { return reinterpret_cast<QMutexPrivate *>(1); }

public:
    void lock()
    {
        QMutexPrivate *free = nullptr;
        if (!d_ptr.compare_exchange_strong(free, locked()))
            lockInternal();
    }
    void unlock()
    {
        QMutexPrivate *taken = locked();
        if (!d_ptr.compare_exchange_strong(taken, nullptr))
            unlockInternal();
    }
};

class QMutex : public QBasicMutex
{
};

GMutex glib_lock;
QMutex qt_lock;

// Not a jump at the end of a function, which would not be in the stack.
#define STAY __asm__ volatile("")

[[gnu::noinline]] static void take_glib() { g_mutex_lock(&glib_lock); STAY; }
[[gnu::noinline]] static void give_back_glib() { g_mutex_unlock(&glib_lock); STAY; }
[[gnu::noinline]] static void use_glib() { take_glib(), give_back_glib(); }
[[gnu::noinline]] static void take_qt() { qt_lock.lock(); STAY; }
[[gnu::noinline]] static void give_back_qt() { qt_lock.unlock(); STAY; }
[[gnu::noinline]] static void use_qt() { take_qt(), give_back_qt(); }

int main(int argc, char **argv)
{
    const long rounds = argc > 1 ? std::atol(argv[1]) : 20;
    if (!begins())
        return 70;
    long glib_ns = 0, qt_ns = 0;
    for (long i = 0; i < rounds; i++) {
        glib_ns += contend(take_glib, give_back_glib, use_glib);
        qt_ns += contend(take_qt, give_back_qt, use_qt);
    }
    std::printf("{\"workload\":\"toolkits\",\"pid\":%d,\"locks\":[],\"threads\":[],\"facts\":"
                "{\"glib_lock\":%ld,\"glib_lock_ns\":%ld,\"qt_lock\":%ld,\"qt_lock_ns\":%ld}}\n",
                getpid(), rounds, glib_ns, rounds, qt_ns);
    return 0;
}
