// gains KIND plain|fixed [THREADS]: a program for each kind of advice, and the same program with the advice followed. Both do the same
// work: sections of some steps, each with a sleep, so that the lock is what holds the threads back, and not the CPUs. When stdin is
// closed it checks what the sections computed, and prints how many there were, and in how many ns.
//
// split           even threads update `left`, odd ones `right`: fixed with a lock for each
// reader-writer   seven sections of eight only read `table`: fixed with a read-write lock
// shorten         six of eight steps are on the thread's own data: fixed by doing these before the lock is taken
// remove          all is on the thread's own data: fixed without a lock
// rare-conflicts  updates any of 16 slots: fixed with four locks
// optimistic      the same, fixed by working on a copy, and doing that again if the slot has changed meanwhile
#include "truth.h"
#include <poll.h>
#include <sys/prctl.h>

#define THREADS 16
#define LINE 64
#define SLOTS 16
#define PARTS 4
#define STEP_NS 300000

struct slot {
    _Alignas(LINE) uint64_t value;
};

pthread_mutex_t gain_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t parts[PARTS] = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER,
                                PTHREAD_MUTEX_INITIALIZER};
pthread_rwlock_t gain_rwlock = PTHREAD_RWLOCK_INITIALIZER;
struct slot left, right, counter, slots[SLOTS];
_Alignas(LINE) uint64_t table[8];

static struct { _Alignas(LINE) uint64_t sections; } done[THREADS];
static _Atomic bool stop;
static bool fixed;

struct worker {
    int index;
    uint64_t turn, random;
    uint64_t *own; // 8 words on the heap, used by this thread only
};

static inline void lock(pthread_mutex_t *mutex)
{
    MUST(pthread_mutex_lock(mutex));
}

static inline void unlock(pthread_mutex_t *mutex)
{
    MUST(pthread_mutex_unlock(mutex));
}

// A step on a word: it is read, work is done, it is written.
static inline void step(volatile uint64_t *word, uint64_t add)
{
    uint64_t value = *word;
    sleep_ns(STEP_NS);
    *word = value + add;
}

NAMED static void update_left(void)
{
    lock(&gain_lock);
    step(&left.value, 1);
    step(&left.value, 1);
    unlock(&gain_lock);
}

NAMED static void update_right(void)
{
    pthread_mutex_t *mutex = fixed ? &parts[0] : &gain_lock;
    lock(mutex);
    step(&right.value, 1);
    step(&right.value, 1);
    unlock(mutex);
}

static void split(struct worker *w)
{
    if (w->index % 2)
        update_right();
    else
        update_left();
}

static uint64_t sum_of_table(void)
{
    uint64_t sum = 0;
    for (int i = 0; i < 8; i++)
        sum += *(volatile uint64_t *)&table[i];
    return sum;
}

NAMED static uint64_t lookup(void)
{
    if (fixed)
        MUST(pthread_rwlock_rdlock(&gain_rwlock));
    else
        lock(&gain_lock);
    uint64_t sum = sum_of_table();
    sleep_ns(2 * STEP_NS);
    if (sum != sum_of_table())
        die("the table changed", EIO);
    if (fixed)
        MUST(pthread_rwlock_unlock(&gain_rwlock));
    else
        unlock(&gain_lock);
    return sum;
}

NAMED static void insert(void)
{
    if (fixed)
        MUST(pthread_rwlock_wrlock(&gain_rwlock));
    else
        lock(&gain_lock);
    step(&table[3], 1);
    step(&table[3], 1);
    if (fixed)
        MUST(pthread_rwlock_unlock(&gain_rwlock));
    else
        unlock(&gain_lock);
}

static void reader_writer(struct worker *w)
{
    if (w->turn++ % 8 == 0)
        insert();
    else
        lookup();
}

NAMED static void prefixed(struct worker *w)
{
    if (!fixed)
        lock(&gain_lock);
    for (int i = 0; i < 6; i++)
        step(&w->own[i], 1);
    if (fixed)
        lock(&gain_lock);
    step(&counter.value, 1);
    step(&counter.value, 1);
    unlock(&gain_lock);
}

NAMED static void alone(struct worker *w)
{
    if (!fixed)
        lock(&gain_lock);
    step(&w->own[0], 1);
    step(&w->own[1], 1);
    if (!fixed)
        unlock(&gain_lock);
}

// Knuth's generator, whose upper bits are the random ones.
static unsigned draw(struct worker *w)
{
    w->random = w->random * 6364136223846793005u + 1442695040888963407u;
    return w->random >> 60;
}

NAMED static void update_any(struct worker *w)
{
    unsigned slot = draw(w);
    pthread_mutex_t *mutex = fixed ? &parts[slot % PARTS] : &gain_lock;
    lock(mutex);
    step(&slots[slot].value, 1);
    step(&slots[slot].value, 1);
    unlock(mutex);
}

NAMED static void update_copy(struct worker *w)
{
    struct slot *slot = &slots[draw(w)];
    uint64_t before = atomic_load((_Atomic uint64_t *)&slot->value), after;
    do {
        after = before;
        step(&after, 1);
        step(&after, 1);
    } while (!atomic_compare_exchange_strong((_Atomic uint64_t *)&slot->value, &before, after));
}

static void optimistic(struct worker *w)
{
    if (fixed)
        update_copy(w);
    else
        update_any(w);
}

static const struct {
    const char *name;
    void (*section)(struct worker *);
} kinds[] = {
    {"split", split}, {"reader-writer", reader_writer}, {"shorten", prefixed},
    {"remove", alone}, {"rare-conflicts", update_any}, {"optimistic", optimistic},
};

static void (*section)(struct worker *);

static void *work(void *arg)
{
    struct worker *w = arg;
    while (!stop) {
        section(w);
        done[w->index].sections++;
        sleep_ns(STEP_NS);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    for (size_t i = 0; argc > 2 && i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(kinds[i].name, argv[1]))
            section = kinds[i].section;
    int threads = (int)number(argc, argv, 3, 4);
    if (!section || threads < 1 || threads > THREADS || (strcmp(argv[2], "plain") && strcmp(argv[2], "fixed")))
        die("gains KIND plain|fixed [THREADS]", EINVAL);
    fixed = !strcmp(argv[2], "fixed");
    // Threads that are started have it, too.
    if (prctl(PR_SET_TIMERSLACK, 1UL))
        die("prctl", errno);
    static struct worker workers[THREADS];
    for (int i = 0; i < threads; i++) {
        workers[i] = (struct worker){.index = i, .turn = (uint64_t)i, .random = (uint64_t)i * 977 + 1};
        workers[i].own = calloc(8, sizeof(uint64_t));
        if (!workers[i].own)
            die("calloc", errno);
    }
    pthread_t thread[THREADS];
    uint64_t began = now_ns();
    for (int i = 0; i < threads; i++)
        MUST(pthread_create(&thread[i], NULL, work, &workers[i]));
    // Not before: who starts a thread blocks its signals meanwhile.
    ready();
    struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
    while (poll(&in, 1, -1) < 0)
        ;
    stop = true;
    for (int i = 0; i < threads; i++)
        MUST(pthread_join(thread[i], NULL));
    uint64_t elapsed = now_ns() - began, all = 0, steps = left.value + right.value + counter.value + table[3];
    for (int i = 0; i < SLOTS; i++)
        steps += slots[i].value;
    for (int i = 0; i < threads; i++) {
        all += done[i].sections;
        steps += section == alone ? workers[i].own[0] + workers[i].own[1] : 0;
    }
    // Two steps of each section are counted; readers take none.
    if (section == reader_writer ? steps == 0 || steps >= 2 * all : steps != 2 * all)
        die("the sections did something else", EIO);
    printf("{\"sections\":%" PRIu64 ",\"elapsed_ns\":%" PRIu64 "}\n", all, elapsed);
    return 0;
}
