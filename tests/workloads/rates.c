// rates [SECONDS] [BURST_MS]: the rate of lock operations changes by a factor of 1,000 within each second. `busy_lock` is taken
// more than a thousand times a second, and in one burst of BURST_MS a second, somewhere in it, as often as it can be: more
// than a million times a second. Three sites take it in turn, for known times. Nobody waits for it.
//
// `shared_lock` is taken by the same thread in calm times, and contended by design: ten times a second its
// holder keeps it until the partner sleeps for it.
//
// Facts: those of the holds of `busy_lock`, bursts, burst_acquisitions, calm_acquisitions, duration_ns.
#include "truth.h"
#include "holds.h"

#define SECOND 1000000000u
#define CALM_NS 666667 // 1,500 a second
#define ROUNDS 10      // of contention, a second

pthread_mutex_t busy_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t shared_lock = PTHREAD_MUTEX_INITIALIZER;

static struct lock_truth *busy_truth, *shared_truth;
static struct own_truth own;
static uint64_t length[3];
static pthread_barrier_t held;
static _Atomic pid_t partner_tid;
static _Atomic bool over;

NAMED static void insert_entry(void)
{
    SHORT_SECTION(busy_truth, &own, length[0]);
}

NAMED static void find_entry(void)
{
    SHORT_SECTION(busy_truth, &own, length[1]);
}

NAMED static void remove_entry(void)
{
    SHORT_SECTION(busy_truth, &own, length[2]);
}

static void operation(uint64_t i)
{
    if (i % 3 == 0)
        insert_entry();
    else if (i % 3 == 1)
        find_entry();
    else
        remove_entry();
}

NAMED static void share(void)
{
    struct section section;
    ACQUIRE(shared_truth, &section);
    RELEASE(shared_truth, &section);
}

NAMED static void partner_section(void)
{
    struct section section;
    ACQUIRE(shared_truth, &section);
    shared_truth->contended++;
    RELEASE(shared_truth, &section);
}

NAMED static void make_wait(void)
{
    struct section section;
    ACQUIRE(shared_truth, &section);
    pthread_barrier_wait(&held);
    await_blocked(&partner_tid, &shared_lock, sizeof shared_lock);
    RELEASE(shared_truth, &section);
    // The partner is through before anybody else comes.
    pthread_barrier_wait(&held);
}

static void *partner(void *arg)
{
    partner_tid = my_tid();
    for (;;) {
        pthread_barrier_wait(&held);
        if (over)
            break;
        partner_section();
        pthread_barrier_wait(&held);
    }
    thread_done();
    return arg;
}

int main(int argc, char **argv)
{
    uint64_t seconds = (uint64_t)number(argc, argv, 1, 3);
    uint64_t burst_ns = (uint64_t)number(argc, argv, 2, 75) * 1000000;
    busy_truth = truth_of("busy_lock", &busy_lock);
    shared_truth = truth_of("shared_lock", &shared_lock);
    prepare();
    for (int i = 0; i < 3; i++)
        length[i] = ticks_of(200 * (uint64_t)(i + 1));
    MUST(pthread_barrier_init(&held, NULL, 2));
    pthread_t thread;
    MUST(pthread_create(&thread, NULL, partner, NULL));
    srand((unsigned)getpid());
    ready_and_go();
    uint64_t begin = now_ns(), burst_made = 0, calm_made = 0;
    for (uint64_t second = 0; second < seconds; second++) {
        uint64_t from = begin + second * SECOND, end = from + SECOND;
        uint64_t burst_at = from + (uint64_t)rand() % (SECOND - burst_ns);
        bool burst_done = false;
        uint64_t round = 0;
        for (uint64_t now = now_ns(); now < end; now = now_ns()) {
            if (!burst_done && now >= burst_at) {
                uint64_t burst_end = ticks() + ticks_of(burst_ns);
                for (; ticks() < burst_end; burst_made++)
                    operation(burst_made);
                burst_done = true;
            } else if (now >= from + round * (SECOND / ROUNDS) && round < ROUNDS) {
                make_wait();
                round++;
            } else {
                operation(calm_made++);
                if (calm_made % 3 == 0)
                    share();
                sleep_ns(CALM_NS - 100000);
            }
        }
    }
    fact("duration_ns", now_ns() - begin);
    fact("bursts", seconds);
    fact("burst_acquisitions", burst_made);
    fact("calm_acquisitions", calm_made);
    over = true;
    pthread_barrier_wait(&held);
    MUST(pthread_join(thread, NULL));
    settle(busy_truth, &own);
    thread_done();
    hold_facts();
    return finish("rates");
}
