// Locks that a program has made itself, of which no observer knows: a mutex that sleeps in futex calls, a spin lock, a read-write lock whose
// mode is an argument. With OWN_LOCKS_ELSEWHERE they are in a library.
#ifndef OWN_LOCKS_H
#define OWN_LOCKS_H

#include <linux/futex.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#define OWN __attribute__((noipa, visibility("default")))

// 0 free, 1 taken, 2 taken and waited for.
struct latch {
    uint32_t rank;
    _Atomic uint32_t word;
    const char *name;
    _Atomic uint32_t waiting;
};

// A handle, through which the lock is reached.
struct pool {
    long size;
    struct latch *latch;
};

struct spin {
    _Atomic uint8_t taken;
    uint8_t number;
    _Atomic uint32_t waiting;
};

// The number of readers, or 1 << 24 for a writer; 1 << 30 while somebody (perhaps) waits.
struct table {
    _Atomic uint32_t state;
    _Atomic uint32_t waiting;
};

enum mode { EXCLUSIVE, SHARED };

#define WRITER (1u << 24)
#define WAITED_FOR (1u << 30)

void latch_get(struct pool *pool);
_Bool latch_try(struct pool *pool);
void latch_put(struct pool *pool);
void spin_get(long unused, struct spin *spin);
void spin_put(long unused, struct spin *spin);
void table_get(struct table *table, enum mode mode);
void table_put(struct table *table);

#ifndef OWN_LOCKS_ELSEWHERE
static inline void futex_own(_Atomic uint32_t *word, int op, uint32_t value)
{
    syscall(SYS_futex, word, op | FUTEX_PRIVATE_FLAG, value, 0, 0, 0);
}

OWN void latch_get(struct pool *pool)
{
    struct latch *latch = pool->latch;
    uint32_t found = 0;
    if (atomic_compare_exchange_strong(&latch->word, &found, 1))
        return;
    latch->waiting++;
    while (atomic_exchange(&latch->word, 2) != 0)
        futex_own(&latch->word, FUTEX_WAIT, 2);
    latch->waiting--;
}

OWN _Bool latch_try(struct pool *pool)
{
    uint32_t found = 0;
    return atomic_compare_exchange_strong(&pool->latch->word, &found, 1);
}

OWN void latch_put(struct pool *pool)
{
    if (atomic_exchange(&pool->latch->word, 0) == 2)
        futex_own(&pool->latch->word, FUTEX_WAKE, 1);
}

OWN void spin_get(long unused, struct spin *spin)
{
    (void)unused;
    if (!atomic_exchange(&spin->taken, 1))
        return;
    spin->waiting++;
    while (atomic_exchange(&spin->taken, 1))
        sched_yield();
    spin->waiting--;
}

OWN void spin_put(long unused, struct spin *spin)
{
    (void)unused;
    spin->taken = 0;
}

OWN void table_get(struct table *table, enum mode mode)
{
    _Bool waits = 0;
    for (;;) {
        uint32_t state = table->state;
        if (!(state & (mode == SHARED ? WRITER : WAITED_FOR - 1))) {
            if (atomic_compare_exchange_strong(&table->state, &state, state + (mode == SHARED ? 1 : WRITER)))
                break;
            continue;
        }
        if (!waits)
            table->waiting++;
        waits = 1;
        if (state & WAITED_FOR || atomic_compare_exchange_strong(&table->state, &state, state | WAITED_FOR))
            futex_own(&table->state, FUTEX_WAIT, state | WAITED_FOR);
    }
    if (waits)
        table->waiting--;
}

OWN void table_put(struct table *table)
{
    uint32_t state = table->state, left;
    do
        left = (state & WRITER ? state - WRITER : state - 1);
    while (!atomic_compare_exchange_strong(&table->state, &state, left & (WAITED_FOR - 1) ? left : left & ~WAITED_FOR));
    if (state & WAITED_FOR && !(left & (WAITED_FOR - 1)))
        futex_own(&table->state, FUTEX_WAKE, INT32_MAX);
}
#endif

#endif
