// deep ROUNDS: a victim waits for `deep_lock` at the end of three chains of calls by turns, ROUNDS times each. Two of them
// differ in nothing but return addresses, as large as each other on the stack; the third one has frames of varying size.
// Nothing here is inlined or called by a jump, so the chains are as they are written.
#include "truth.h"
#include <alloca.h>

pthread_mutex_t deep_lock = PTHREAD_MUTEX_INITIALIZER;

static struct lock_truth *truth;
static pthread_barrier_t held, round_over;
static _Atomic pid_t victim_tid;
static long rounds;
static volatile long sink;

NAMED static long deep_section(long n)
{
    struct section section;
    ACQUIRE(truth, &section);
    truth->contended++;
    RELEASE(truth, &section);
    return n + 1;
}

NAMED static long chain_d(long n)
{
    return deep_section(n) + 1;
}

NAMED static long chain_c(long n)
{
    long kept[3] = {n, n + 1, n + 2};
    sink = kept[n % 3];
    return chain_d(n) + kept[(n + 1) % 3];
}

NAMED static long chain_b(long n)
{
    return chain_c(n) * 3 + 1;
}

NAMED static long left(long n)
{
    return chain_b(n) + 5;
}

NAMED static long right(long n)
{
    return chain_b(n) + 5;
}

// Its frame can be found by its frame pointer only, and is of another size each time.
NAMED static long varying(long n)
{
    size_t size = 16 + (size_t)(n % 7) * 48;
    volatile char *room = alloca(size);
    room[0] = (char)n;
    room[size - 1] = 1;
    return chain_b(n) + room[size - 1];
}

NAMED static long victim_round(long n)
{
    pthread_barrier_wait(&held);
    long result = n % 3 == 0 ? left(n) : n % 3 == 1 ? right(n) : varying(n);
    pthread_barrier_wait(&round_over);
    return result + 1;
}

static void *victim(void *arg)
{
    victim_tid = my_tid();
    for (long n = 0; n < 3 * rounds; n++)
        sink = victim_round(n);
    thread_done();
    return arg;
}

NAMED static void holder_section(void)
{
    struct section section;
    ACQUIRE(truth, &section);
    pthread_barrier_wait(&held);
    await_blocked(&victim_tid, &deep_lock, sizeof deep_lock);
    uint64_t begin = now_ns();
    sleep_ns(1000000);
    truth->wait_min_ns += now_ns() - begin;
    RELEASE(truth, &section);
}

NAMED static long holder_chain(long n)
{
    holder_section();
    return n + 1;
}

int main(int argc, char **argv)
{
    rounds = number(argc, argv, 1, 10);
    truth = truth_of("deep_lock", &deep_lock);
    MUST(pthread_barrier_init(&held, NULL, 2));
    MUST(pthread_barrier_init(&round_over, NULL, 2));
    ready_and_go();
    pthread_t thread;
    MUST(pthread_create(&thread, NULL, victim, NULL));
    for (long n = 0; n < 3 * rounds; n++) {
        sink = holder_chain(n);
        pthread_barrier_wait(&round_over);
    }
    MUST(pthread_join(thread, NULL));
    thread_done();
    fact("waits_each", (uint64_t)rounds);
    return finish("deep");
}
