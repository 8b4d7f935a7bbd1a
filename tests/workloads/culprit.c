// culprit ROUNDS: one victim waits for `cache_lock` behind `slow_holder` (20 ms a round) and behind `quick_holder`
// (1 ms a round), by turns. Most of its waiting is the slow holder's; `bystander` locks `quiet_lock`, which nobody
// else wants, for as long.
#include "truth.h"

pthread_mutex_t cache_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t quiet_lock = PTHREAD_MUTEX_INITIALIZER;

static struct lock_truth *truth, *quiet_truth;
static pthread_barrier_t held, round_over;
static _Atomic pid_t victim_tid;
static _Atomic bool stop;
static long rounds;

static void hold_while_waited_for(uint64_t ns, const struct lock_truth *held_truth)
{
    pthread_barrier_wait(&held);
    await_blocked(&victim_tid, held_truth->object, sizeof(pthread_mutex_t));
    uint64_t begin = now_ns();
    sleep_ns(ns);
    truth->wait_min_ns += now_ns() - begin;
}

NAMED static void slow_holder(void)
{
    struct section section;
    ACQUIRE(truth, &section);
    hold_while_waited_for(20000000, truth);
    RELEASE(truth, &section);
}

NAMED static void quick_holder(void)
{
    struct section section;
    ACQUIRE(truth, &section);
    hold_while_waited_for(1000000, truth);
    RELEASE(truth, &section);
}

NAMED static void victim_section(void)
{
    struct section section;
    ACQUIRE(truth, &section);
    truth->contended++;
    RELEASE(truth, &section);
}

NAMED static void bystander_section(void)
{
    struct section section;
    ACQUIRE(quiet_truth, &section);
    sleep_ns(20000000);
    RELEASE(quiet_truth, &section);
}

static void *victim(void *arg)
{
    victim_tid = my_tid();
    for (long i = 0; i < 2 * rounds; i++) {
        pthread_barrier_wait(&held);
        victim_section();
        pthread_barrier_wait(&round_over);
    }
    thread_done();
    return arg;
}

static void *bystander(void *arg)
{
    while (!stop)
        bystander_section();
    thread_done();
    return arg;
}

int main(int argc, char **argv)
{
    rounds = number(argc, argv, 1, 10);
    truth = truth_of("cache_lock", &cache_lock);
    quiet_truth = truth_of("quiet_lock", &quiet_lock);
    MUST(pthread_barrier_init(&held, NULL, 2));
    MUST(pthread_barrier_init(&round_over, NULL, 2));
    ready_and_go();
    pthread_t waiting, other;
    MUST(pthread_create(&waiting, NULL, victim, NULL));
    MUST(pthread_create(&other, NULL, bystander, NULL));
    for (long i = 0; i < rounds; i++) {
        slow_holder();
        pthread_barrier_wait(&round_over);
        quick_holder();
        pthread_barrier_wait(&round_over);
    }
    stop = true;
    MUST(pthread_join(waiting, NULL));
    MUST(pthread_join(other, NULL));
    thread_done();
    return finish("culprit");
}
