// starved WHO SECONDS: threads that want one lock again and again, and how it is shared out among them.
//   barging  one thread of a better priority (takes the right to have one) asks again at once after each release, while a second one waits
//   writer   readers that overlap, so that a writer gets the lock at the end of each tenth of a second only
//   equal    look-alike: every thread waits long, each as long as the others, since the lock is handed over in turn
//   rare     look-alike: one thread waits long each time, for one long section, but seldom asks
//
// Holds sleep, so that they last on a busy machine, too. Facts: victim (a tid; 0 if nobody starves), victim_got: how often it got the lock.
#include "truth.h"
#include <sched.h>

#define MAX_OF_THEM 8
#define STEP_NS 1000000
#define GAP_NS 100000000

pthread_mutex_t hall_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_rwlock_t board_lock = PTHREAD_RWLOCK_INITIALIZER;

static struct lock_truth *truth;
static _Atomic uint64_t victim, victim_got;
static _Atomic int inside, gaps;
static uint64_t end_ns;

static bool goes_on(void)
{
    return now_ns() < end_ns;
}

// Asks again at once: whoever was woken finds the lock taken.
NAMED static void hog_section(void)
{
    struct section section;
    ACQUIRE(truth, &section);
    sleep_ns(STEP_NS);
    RELEASE(truth, &section);
}

NAMED static void modest_section(void)
{
    struct section section;
    ACQUIRE(truth, &section);
    victim_got += victim == (uint64_t)my_tid();
    RELEASE(truth, &section);
}

NAMED static void scan_board(void)
{
    struct section section;
    ACQUIRE_BY(truth, &section, pthread_rwlock_rdlock(&board_lock));
    inside++;
    int gap = gaps;
    sleep_ns(STEP_NS);
    // Goes when another one is inside, or all go.
    while (inside < 2 && gap == gaps)
        sleep_ns(STEP_NS / 10);
    inside--;
    RELEASE_BY(truth, &section, pthread_rwlock_unlock(&board_lock));
}

NAMED static void write_board(void)
{
    struct section section;
    ACQUIRE_BY(truth, &section, pthread_rwlock_wrlock(&board_lock));
    victim_got++;
    RELEASE_BY(truth, &section, pthread_rwlock_unlock(&board_lock));
}

// On one CPU. Who has the better priority there goes on when it has woken another one, which comes too late each time.
static void share_a_cpu(int policy)
{
    cpu_set_t all, one;
    MUST(pthread_getaffinity_np(pthread_self(), sizeof all, &all));
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; cpu++) {
        if (CPU_ISSET(cpu, &all))
            CPU_SET(cpu, &one);
    }
    MUST(pthread_setaffinity_np(pthread_self(), sizeof one, &one));
    // It sleeps most of the time.
    MUST(pthread_setschedparam(pthread_self(), policy, &(struct sched_param){.sched_priority = policy == SCHED_FIFO}));
}

static void *hog(void *arg)
{
    share_a_cpu(SCHED_FIFO);
    while (goes_on()) {
        for (uint64_t until = now_ns() + GAP_NS; now_ns() < until;)
            hog_section();
        sleep_ns(STEP_NS * 2);
    }
    thread_done();
    return arg;
}

static void *modest(void *arg)
{
    share_a_cpu(SCHED_OTHER);
    victim = my_tid();
    while (goes_on()) {
        modest_section();
        sleep_ns(STEP_NS / 5);
    }
    thread_done();
    return arg;
}

static void *reader(void *arg)
{
    while (goes_on()) {
        scan_board();
        // A gap: nobody comes in until the writer has been there.
        uint64_t got = victim_got;
        for (int gap = gaps; gap % 2 && victim_got == got && gap == gaps && goes_on();)
            sleep_ns(STEP_NS / 10);
    }
    gaps++;
    thread_done();
    return arg;
}

static void *writer(void *arg)
{
    victim = my_tid();
    while (goes_on()) {
        write_board();
        sleep_ns(STEP_NS / 5);
    }
    thread_done();
    return arg;
}

// Makes the gaps.
static void *clock_of_gaps(void *arg)
{
    while (goes_on()) {
        sleep_ns(GAP_NS);
        uint64_t got = victim_got;
        gaps++;
        while (victim_got == got && goes_on())
            sleep_ns(STEP_NS / 10);
        gaps++;
    }
    return arg;
}

// Asks again at once, but the kernel hands the lock to who has waited longest.
static void *equal(void *arg)
{
    while (goes_on())
        hog_section();
    thread_done();
    return arg;
}

NAMED static void long_section(void)
{
    struct section section;
    ACQUIRE(truth, &section);
    sleep_ns(STEP_NS * 60);
    RELEASE(truth, &section);
}

static void *long_holder(void *arg)
{
    while (goes_on()) {
        long_section();
        sleep_ns(STEP_NS * 5);
    }
    thread_done();
    return arg;
}

static void *rare(void *arg)
{
    while (goes_on()) {
        modest_section();
        sleep_ns(STEP_NS * 150);
    }
    thread_done();
    return arg;
}

static pthread_t threads[MAX_OF_THEM];
static int count;

static void begin(void *(*body)(void *), long argument)
{
    MUST(pthread_create(&threads[count++], NULL, body, (void *)argument));
}

int main(int argc, char **argv)
{
    const char *who = argc > 1 ? argv[1] : "barging";
    bool rw = !strcmp(who, "writer");
    truth = rw ? truth_of("board_lock", &board_lock) : truth_of("hall_lock", &hall_lock);
    ready_and_go();
    end_ns = now_ns() + (uint64_t)number(argc, argv, 2, 2) * 1000000000;
    if (rw) {
        for (long i = 0; i < 3; i++)
            begin(reader, i);
        begin(writer, 0);
        begin(clock_of_gaps, 0);
    } else if (!strcmp(who, "equal")) {
        pthread_mutexattr_t attributes;
        MUST(pthread_mutexattr_init(&attributes));
        MUST(pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT));
        MUST(pthread_mutex_init(&hall_lock, &attributes));
        for (long i = 0; i < 3; i++)
            begin(equal, i);
    } else if (!strcmp(who, "rare")) {
        begin(long_holder, 0);
        begin(rare, 0);
    } else {
        begin(hog, 0);
        begin(modest, 0);
    }
    for (int i = 0; i < count; i++)
        MUST(pthread_join(threads[i], NULL));
    fact("victim", victim);
    fact("victim_got", victim_got);
    return finish("starved");
}
