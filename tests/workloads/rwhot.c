// rwhot [THREADS] [SECONDS]: threads that read a table most of the time, and change it once in sixteen, as fast as they can.
// Who writes holds `table_lock` for 30 us, who reads for 3. So readers and writers wait on different words of the lock.
//
// Facts: waited_ns, the time in those calls that took longer than a free lock's; waits, how many those were.
#include "truth.h"

#define SHORT_NS 20000

pthread_rwlock_t table_lock = PTHREAD_RWLOCK_INITIALIZER;

static struct lock_truth *truth;
static uint64_t end_ns;
static _Atomic uint64_t waited_ns, waits;

static void busy_ns(uint64_t ns)
{
    uint64_t until = now_ns() + ns;
    while (now_ns() < until)
        ;
}

NAMED static void *worker(void *arg)
{
    uint64_t done = 0, own_waited_ns = 0, own_waits = 0;
    for (unsigned turn = (unsigned)(uintptr_t)arg; now_ns() < end_ns; turn++) {
        bool writes = turn % 16 == 0;
        uint64_t called = now_ns();
        MUST(writes ? pthread_rwlock_wrlock(&table_lock) : pthread_rwlock_rdlock(&table_lock));
        uint64_t took = now_ns() - called;
        if (took > SHORT_NS) {
            own_waited_ns += took;
            own_waits++;
        }
        busy_ns(writes ? 30000 : 3000);
        MUST(pthread_rwlock_unlock(&table_lock));
        busy_ns(2000);
        done++;
    }
    __atomic_fetch_add(&truth->acquisitions, done, __ATOMIC_RELAXED);
    my_acquisitions += done;
    waited_ns += own_waited_ns;
    waits += own_waits;
    thread_done();
    return NULL;
}

int main(int argc, char **argv)
{
    long threads = number(argc, argv, 1, 4);
    uint64_t duration_ns = (uint64_t)number(argc, argv, 2, 3) * 1000000000;
    pthread_t started[MAX_THREADS];
    if (threads > MAX_THREADS)
        die("threads", EINVAL);
    truth = truth_of("table_lock", &table_lock);
    ready_and_go();
    end_ns = now_ns() + duration_ns;
    for (long i = 0; i < threads; i++)
        MUST(pthread_create(&started[i], NULL, worker, (void *)(uintptr_t)(4 * i)));
    for (long i = 0; i < threads; i++)
        MUST(pthread_join(started[i], NULL));
    fact("waited_ns", waited_ns);
    fact("waits", waits);
    return finish("rwhot");
}
