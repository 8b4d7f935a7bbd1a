// chained ROUNDS: `root_cause` holds `inner_lock`; `middle_man` holds `outer_lock` and waits for `inner_lock`;
// `last_in_line` waits for `outer_lock`. All sleep before the root cause goes on for 2 ms.
#include "truth.h"

pthread_mutex_t inner_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t outer_lock = PTHREAD_MUTEX_INITIALIZER;

static struct lock_truth *inner, *outer;
static pthread_barrier_t inner_held, outer_held, round_over;
static _Atomic pid_t middle_tid, last_tid;
static long rounds;

NAMED static void root_cause(void)
{
    struct section section;
    ACQUIRE(inner, &section);
    pthread_barrier_wait(&inner_held);
    await_blocked(&middle_tid, &inner_lock, sizeof inner_lock);
    await_blocked(&last_tid, &outer_lock, sizeof outer_lock);
    uint64_t all_wait = now_ns();
    sleep_ns(2000000);
    uint64_t waited = now_ns() - all_wait;
    inner->wait_min_ns += waited;
    outer->wait_min_ns += waited;
    RELEASE(inner, &section);
}

NAMED static void middle_man(void)
{
    struct section outer_section, inner_section;
    pthread_barrier_wait(&inner_held);
    ACQUIRE(outer, &outer_section);
    pthread_barrier_wait(&outer_held);
    ACQUIRE(inner, &inner_section);
    inner->contended++;
    RELEASE(inner, &inner_section);
    RELEASE(outer, &outer_section);
}

NAMED static void last_in_line(void)
{
    struct section section;
    pthread_barrier_wait(&outer_held);
    ACQUIRE(outer, &section);
    outer->contended++;
    RELEASE(outer, &section);
}

static void *middle(void *arg)
{
    middle_tid = my_tid();
    for (long i = 0; i < rounds; i++) {
        middle_man();
        pthread_barrier_wait(&round_over);
    }
    thread_done();
    return arg;
}

static void *last(void *arg)
{
    last_tid = my_tid();
    for (long i = 0; i < rounds; i++) {
        last_in_line();
        pthread_barrier_wait(&round_over);
    }
    thread_done();
    return arg;
}

int main(int argc, char **argv)
{
    rounds = number(argc, argv, 1, 10);
    inner = truth_of("inner_lock", &inner_lock);
    outer = truth_of("outer_lock", &outer_lock);
    MUST(pthread_barrier_init(&inner_held, NULL, 2));
    MUST(pthread_barrier_init(&outer_held, NULL, 2));
    MUST(pthread_barrier_init(&round_over, NULL, 3));
    ready_and_go();
    pthread_t thread[2];
    MUST(pthread_create(&thread[0], NULL, middle, NULL));
    MUST(pthread_create(&thread[1], NULL, last, NULL));
    for (long i = 0; i < rounds; i++) {
        root_cause();
        pthread_barrier_wait(&round_over);
    }
    MUST(pthread_join(thread[0], NULL));
    MUST(pthread_join(thread[1], NULL));
    thread_done();
    return finish("chained");
}
