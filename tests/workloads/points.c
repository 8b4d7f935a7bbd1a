// points ROUNDS FREE: a lock of the program's own that tells by points (USDT) what happens to it, each with a counter of those who watch. It is
// taken FREE times while it is free, and ROUNDS times it is held until another thread waits for it. A try fails FREE times. Its functions are inlined.
#include "truth.h"

#include <linux/futex.h>

// How long the lock is held once somebody waits, at least.
#define HELD_NS 1000000

// Who watches, by point; written by the kernel alone.
#define COUNTER(name) volatile uint16_t name##_counter __attribute__((section(".probes"), used))
COUNTER(waits);
COUNTER(taken);
COUNTER(given);
COUNTER(missed);

__asm__(".pushsection .stapsdt.base,\"aG\",\"progbits\",.stapsdt.base,comdat\n"
        ".weak _.stapsdt.base\n_.stapsdt.base: .space 1\n.size _.stapsdt.base,1\n.popsection\n");

// As <sys/sdt.h> writes it. The number comes first, so that the lock is the second argument.
#define POINT(name, lock)                                                                                              \
    __asm__ volatile("990: nop\n"                                                                                      \
                     ".pushsection .note.stapsdt,\"\",\"note\"\n.balign 4\n.4byte 992f-991f,994f-993f,3\n"             \
                     "991: .asciz \"stapsdt\"\n992: .balign 4\n993: .8byte 990b,_.stapsdt.base," #name "_counter\n"    \
                     ".asciz \"points\"\n.asciz \"" #name "\"\n.asciz \"-4@%0 8@%1\"\n994: .balign 4\n"       \
                     ".popsection\n" ::"nor"(7),                                                                       \
                     "nor"(lock))

// 0 free, 1 taken, 2 taken and waited for.
struct latch {
    uint32_t rank;
    _Atomic uint32_t word;
    const char *name;
    _Atomic uint32_t waiting;
};

static struct latch own_latch = {.rank = 7, .name = "orders"};
static struct lock_truth *truth;
static uint64_t watched;

static inline void futex(_Atomic uint32_t *word, int op, uint32_t value)
{
    syscall(SYS_futex, word, op | FUTEX_PRIVATE_FLAG, value, 0, 0, 0);
}

static inline __attribute__((always_inline)) void latch_get(struct latch *latch)
{
    uint32_t was = 0;
    if (!atomic_compare_exchange_strong(&latch->word, &was, 1)) {
        POINT(waits, latch);
        latch->waiting++;
        while (atomic_exchange(&latch->word, 2) != 0)
            futex(&latch->word, FUTEX_WAIT, 2);
        latch->waiting--;
    }
    // A program that prepares something for whoever watches does so only if somebody does.
    if (taken_counter)
        watched++;
    POINT(taken, latch);
}

static inline __attribute__((always_inline)) bool latch_try(struct latch *latch)
{
    uint32_t was = 0;
    if (!atomic_compare_exchange_strong(&latch->word, &was, 1)) {
        POINT(missed, latch);
        return false;
    }
    POINT(taken, latch);
    return true;
}

static inline __attribute__((always_inline)) void latch_put(struct latch *latch)
{
    POINT(given, latch);
    if (atomic_exchange(&latch->word, 0) == 2)
        futex(&latch->word, FUTEX_WAKE, 1);
}

static void had(void)
{
    truth->acquisitions++;
    my_acquisitions++;
}

NAMED static void *want(void *unused)
{
    (void)unused;
    latch_get(&own_latch);
    had();
    latch_put(&own_latch);
    thread_done();
    return NULL;
}

NAMED static void *try_in_vain(void *times)
{
    for (long i = 0; i < *(long *)times; i++) {
        if (latch_try(&own_latch))
            die("latch_try", EEXIST);
        truth->try_failures++;
    }
    thread_done();
    return NULL;
}

NAMED static void slow_holder(void)
{
    pthread_t waiter;
    latch_get(&own_latch);
    had();
    MUST(pthread_create(&waiter, NULL, want, NULL));
    while (!own_latch.waiting)
        sleep_ns(100000);
    uint64_t from = now_ns();
    sleep_ns(HELD_NS);
    truth->wait_min_ns += now_ns() - from;
    latch_put(&own_latch);
    MUST(pthread_join(waiter, NULL));
    truth->contended++;
}

int main(int argc, char **argv)
{
    long rounds = number(argc, argv, 1, 20), free = number(argc, argv, 2, 1000);
    truth = truth_of("own_latch", &own_latch);
    fact("at_waits", (uintptr_t)&waits_counter);
    fact("at_taken", (uintptr_t)&taken_counter);
    fact("at_given", (uintptr_t)&given_counter);
    fact("at_missed", (uintptr_t)&missed_counter);
    ready_and_go();
    uint64_t meanwhile = (waits_counter != 0) + (taken_counter != 0) + (given_counter != 0) + (missed_counter != 0);
    for (long i = 0; i < free; i++) {
        latch_get(&own_latch);
        had();
        latch_put(&own_latch);
    }
    pthread_t trier;
    latch_get(&own_latch);
    had();
    MUST(pthread_create(&trier, NULL, try_in_vain, &free));
    MUST(pthread_join(trier, NULL));
    latch_put(&own_latch);
    for (long i = 0; i < rounds; i++)
        slow_holder();
    fact("watched_points", meanwhile);
    fact("watched", watched);
    thread_done();
    print_truth("points");
    // Whoever reads this memory sees whether anybody watches still.
    linger();
    return waits_counter + taken_counter + given_counter + missed_counter ? 71 : 0;
}
