// accesses MODE [THREADS]: threads take `access_lock` as fast as they can, and each section of a mode makes exactly the accesses
// that its comment says, to fields of `shared` whose offsets are printed as the first line. Every 100 ms it prints how many sections
// were done per second, until stdin is closed; then it checks what the sections computed, prints "sum ok", and exits with 0.
//
// Signals: it counts those of SIGUSR1 and of the real-time signal SIGRTMIN + 1 that reach any thread, and prints the numbers with
// the check. It neither catches nor blocks SIGURG. With PAUSE_US in its environment each thread sleeps so long between sections.
#include "truth.h"
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>

#define THREADS 16
#define LINE 64

struct shared {
    _Alignas(LINE) uint64_t left;
    _Alignas(LINE) uint64_t right;
    _Alignas(LINE) uint64_t counter;
    _Alignas(LINE) uint64_t rare;
    _Alignas(LINE) uint64_t pair[8];
    _Alignas(LINE) uint64_t table[32];
    _Alignas(LINE) struct { _Alignas(LINE) uint64_t value; } slots[THREADS];
    _Alignas(LINE) char from[256];
    _Alignas(LINE) char to[256];
    _Alignas(LINE) uint32_t numbers[64];
};

pthread_mutex_t access_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t inner_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_rwlock_t access_rwlock = PTHREAD_RWLOCK_INITIALIZER;
struct shared shared;

// How often each thread has done each of a mode's two sections.
static struct { _Alignas(LINE) uint64_t one, other; } done[THREADS];
static _Atomic bool stop;
static _Atomic uint64_t signals, real_time_signals;
static int devnull;

struct worker {
    int index;
    uint64_t turn;
    uint64_t *private; // 64 words on the heap, used by this thread only
};

static inline void lock(void)
{
    MUST(pthread_mutex_lock(&access_lock));
}

static inline void unlock(void)
{
    MUST(pthread_mutex_unlock(&access_lock));
}

// Updates `left`: even threads.
NAMED static void update_left(void)
{
    lock();
    shared.left++;
    unlock();
}

// Updates `right`: odd threads.
NAMED static void update_right(void)
{
    lock();
    shared.right++;
    unlock();
}

static void disjoint(struct worker *w)
{
    if (w->index % 2) {
        update_right();
        done[w->index].other++;
    } else {
        update_left();
        done[w->index].one++;
    }
}

// Reads all 32 words of `table`.
NAMED static uint64_t lookup(void)
{
    uint64_t sum = 0;
    lock();
    for (int i = 0; i < 32; i++)
        sum += *(volatile uint64_t *)&shared.table[i];
    unlock();
    return sum;
}

// Writes `table[3]`: one section in sixteen.
NAMED static void insert(uint64_t value)
{
    lock();
    shared.table[3] = value;
    unlock();
}

static void readmostly(struct worker *w)
{
    if (w->turn++ % 16 == 0)
        insert(w->turn);
    else
        lookup();
    done[w->index].one++;
}

// Updates words on the heap that only this thread uses.
NAMED static void alone(struct worker *w)
{
    lock();
    for (int i = 0; i < 8; i++)
        w->private[i]++;
    unlock();
}

static void empty(struct worker *w)
{
    alone(w);
    done[w->index].one++;
}

// Updates `counter`.
NAMED static void count(void)
{
    lock();
    shared.counter++;
    unlock();
}

static void counter(struct worker *w)
{
    count();
    done[w->index].one++;
}

// Updates `slots[index]`, and in one section of ten `rare` as well.
NAMED static void rarely(struct worker *w, bool conflict)
{
    lock();
    shared.slots[w->index].value++;
    if (conflict)
        shared.rare++;
    unlock();
}

static void rare(struct worker *w)
{
    bool conflict = w->turn++ % 10 == 0;
    rarely(w, conflict);
    done[w->index].one++;
    done[w->index].other += conflict;
}

// Updates `pair[index]`: words of one cache line.
NAMED static void beside(struct worker *w)
{
    lock();
    shared.pair[w->index % 8]++;
    unlock();
}

static void adjacent(struct worker *w)
{
    beside(w);
    done[w->index].one++;
}

// Works on 64 words of its own, then updates `counter`.
NAMED static void prefixed(struct worker *w)
{
    lock();
    for (int i = 0; i < 64; i++)
        w->private[i] = w->private[i] * 3 + (uint64_t)i;
    shared.counter++;
    unlock();
}

static void prefix(struct worker *w)
{
    prefixed(w);
    done[w->index].one++;
}

// Copies `from` to `to` and reads `numbers`, by whatever instructions the C library and the compiler choose.
NAMED static uint64_t copies(void)
{
    uint64_t sum = 0;
    lock();
    memcpy(shared.to, shared.from, *(volatile size_t *)&(size_t){sizeof shared.to});
    sum += strlen(shared.to);
    for (int i = 0; i < 64; i++)
        sum += shared.numbers[i];
    unlock();
    return sum;
}

static void copy(struct worker *w)
{
    if (copies() != 199 + 64 * 63 / 2)
        die("the copy is wrong", EIO);
    done[w->index].one++;
}

// Updates `counter` under the outer lock, `left` under both.
NAMED static void both(void)
{
    lock();
    shared.counter++;
    MUST(pthread_mutex_lock(&inner_lock));
    shared.left++;
    MUST(pthread_mutex_unlock(&inner_lock));
    unlock();
}

static void nested(struct worker *w)
{
    both();
    done[w->index].one++;
}

// Writes the 256 bytes of `to` to a file, and updates `counter`.
NAMED static void written(void)
{
    lock();
    if (write(devnull, shared.to, sizeof shared.to) != sizeof shared.to)
        die("write", errno);
    shared.counter++;
    unlock();
}

static void file(struct worker *w)
{
    written();
    done[w->index].one++;
}

// Reads `counter` and `left`; one section in four writes them.
NAMED static uint64_t shared_read(void)
{
    MUST(pthread_rwlock_rdlock(&access_rwlock));
    uint64_t sum = *(volatile uint64_t *)&shared.counter + *(volatile uint64_t *)&shared.left;
    MUST(pthread_rwlock_unlock(&access_rwlock));
    return sum;
}

NAMED static void exclusive_write(void)
{
    MUST(pthread_rwlock_wrlock(&access_rwlock));
    shared.counter++;
    shared.left++;
    MUST(pthread_rwlock_unlock(&access_rwlock));
}

static void readwrite(struct worker *w)
{
    if (w->turn++ % 4 == 0) {
        exclusive_write();
        done[w->index].one++;
    } else {
        shared_read();
    }
}

// Some 500 instructions, of which the branches depend on what `numbers` holds; then updates `counter`.
NAMED static uint64_t branches(void)
{
    uint64_t sum = 0;
    lock();
    for (int i = 0; i < 64; i++) {
        uint32_t n = *(volatile uint32_t *)&shared.numbers[i];
        // What keeps the compiler from doing both without a branch.
        if (n % 3 == 0) {
            __asm__ volatile("" : "+r"(sum));
            sum += n;
        } else {
            __asm__ volatile("" : "+r"(n));
            sum ^= n;
        }
    }
    shared.counter++;
    unlock();
    return sum;
}

static void branchy(struct worker *w)
{
    branches();
    done[w->index].one++;
}

// Figure 1 of PinCS: updates `slots[index]`, for heads `counter` as well, then thinks. Who tosses heads conflicts with those who do.
NAMED static void tossed(struct worker *w, bool heads)
{
    volatile int private = 0;
    MUST(pthread_rwlock_wrlock(&access_rwlock));
    private++;
    if (heads)
        shared.counter++;
    shared.slots[w->index].value++;
    for (int i = 0; i < 4000; i++)
        __asm__ volatile("" : "+r"(i));
    MUST(pthread_rwlock_unlock(&access_rwlock));
}

static void coin(struct worker *w)
{
    // Knuth's generator, whose upper bits are the random ones; each thread has its own.
    w->turn = (w->turn + (uint64_t)w->index) * 6364136223846793005u + 1442695040888963407u;
    bool heads = w->turn >> 63;
    tossed(w, heads);
    done[w->index].one++;
    done[w->index].other += heads;
}

static const struct {
    const char *name;
    void (*section)(struct worker *);
} modes[] = {
    {"disjoint", disjoint}, {"readmostly", readmostly}, {"empty", empty},   {"counter", counter}, {"rare", rare},
    {"adjacent", adjacent}, {"prefix", prefix},         {"copy", copy},     {"nested", nested},   {"file", file},
    {"readwrite", readwrite}, {"branchy", branchy}, {"coin", coin},
};

static void (*section)(struct worker *);
static uint64_t pause_ns;

static void *work(void *arg)
{
    struct worker *w = arg;
    w->private = calloc(64, sizeof *w->private);
    while (!stop) {
        section(w);
        // So that the lock is contended, but not all the time.
        for (volatile int i = 0; i < 100; i++)
            ;
        if (pause_ns > 0)
            sleep_ns(pause_ns);
    }
    free(w->private);
    return NULL;
}

static void on_signal(int number)
{
    if (number == SIGUSR1)
        signals++;
    else
        real_time_signals++;
}

static uint64_t sum_of(bool other)
{
    uint64_t sum = 0;
    for (int i = 0; i < THREADS; i++)
        sum += other ? done[i].other : done[i].one;
    return sum;
}

static void check(const char *mode)
{
    uint64_t one = sum_of(false), other = sum_of(true), slots = 0;
    for (int i = 0; i < THREADS; i++)
        slots += shared.slots[i].value + (i < 8 ? shared.pair[i] : 0);
    bool counts = !strcmp(mode, "counter") || !strcmp(mode, "prefix") || !strcmp(mode, "nested") || !strcmp(mode, "file")
        || !strcmp(mode, "readwrite") || !strcmp(mode, "branchy");
    bool wrong = (counts && shared.counter != one) || (!strcmp(mode, "disjoint") && (shared.left != one || shared.right != other))
        || (!strcmp(mode, "nested") && shared.left != one) || (!strcmp(mode, "readwrite") && shared.left != one)
        || (!strcmp(mode, "rare") && (slots != one || shared.rare != other)) || (!strcmp(mode, "coin") && (slots != one || shared.counter != other)) || (!strcmp(mode, "adjacent") && slots != one);
    printf("sum %s signals %" PRIu64 " real-time %" PRIu64 "\n", wrong ? "wrong" : "ok", (uint64_t)signals,
           (uint64_t)real_time_signals);
    fflush(stdout);
    if (wrong)
        exit(71);
}

int main(int argc, char **argv)
{
    const char *pause = getenv("PAUSE_US");
    pause_ns = pause ? (uint64_t)atol(pause) * 1000 : 0;
    const char *mode = argc > 1 ? argv[1] : "counter";
    int threads = (int)number(argc, argv, 2, 2);
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
        if (!strcmp(modes[i].name, mode))
            section = modes[i].section;
    if (!section || threads < 1 || threads > THREADS)
        die("accesses MODE [THREADS]", EINVAL);
    memset(shared.from, 'x', 199);
    for (uint32_t i = 0; i < 64; i++)
        shared.numbers[i] = i;
    if ((devnull = open("/dev/null", O_WRONLY)) < 0)
        die("/dev/null", errno);
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigaction(SIGUSR1, &action, NULL);
    sigaction(SIGRTMIN + 1, &action, NULL);
    printf("{\"shared\":\"%p\"", (void *)&shared);
#define OFFSET(field) printf(",\"" #field "\":%zu", offsetof(struct shared, field))
    OFFSET(left);
    OFFSET(right);
    OFFSET(counter);
    OFFSET(rare);
    OFFSET(pair);
    OFFSET(table);
    OFFSET(slots);
    OFFSET(from);
    OFFSET(to);
    OFFSET(numbers);
    printf("}\n");
    pthread_t thread[THREADS];
    static struct worker workers[THREADS];
    for (int i = 0; i < threads; i++) {
        workers[i].index = i;
        MUST(pthread_create(&thread[i], NULL, work, &workers[i]));
    }
    ready();
    struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
    uint64_t before = 0, began = now_ns();
    for (;;) {
        int came = poll(&in, 1, 100);
        if (came > 0)
            break;
        if (came < 0)
            continue;
        uint64_t now = now_ns(), made = sum_of(false) + (section == disjoint ? sum_of(true) : 0);
        printf("%" PRIu64 "\n", (made - before) * 1000000000 / (now - began));
        fflush(stdout);
        before = made;
        began = now;
    }
    stop = true;
    for (int i = 0; i < threads; i++)
        MUST(pthread_join(thread[i], NULL));
    check(mode);
    return 0;
}
