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

#ifdef __x86_64__
// Each class of instructions with a memory operand, between writes of `table[CLASS]`, all on `from`, `to` and `numbers`; what each
// does is the same in each section. Whatever is loaded is used: valgrind leaves out loads of what is not.
#define CLASS(n) (*(volatile uint64_t *)&shared.table[n] = (n))
#define ASM(...) \
    __asm__ volatile(__VA_ARGS__ : "memory", "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5")

// Every byte by itself, so that accesses are told byte by byte.
static void bytes(void)
{
    for (char *at = shared.from; at < (char *)(&shared.numbers + 1); at++)
        (void)*(volatile char *)at;
}

static void moves(char *from, char *to)
{
    uint64_t x;
    ASM("movb 3(%1), %b0; movb %b0, 5(%2); movw 7(%1), %w0; movw %w0, 9(%2); movl 13(%1), %k0; movl %k0, 15(%2);"
        "movq 21(%1), %0; movq %0, 23(%2); movzbl 33(%1), %k0; movl %k0, 31(%2); movswq 35(%1), %0; movq %0, 35(%2);"
        "movslq 37(%1), %0; movq %0, 43(%2); movbe 41(%1), %0; movbe %0, 51(%2); cmpb $0, 49(%1); sete 59(%2);"
        "testl $1, 51(%1); setne 60(%2); cmpq %0, 55(%2); setb 61(%2); addq 63(%1), %0; movq %0, 62(%2);"
        "bsfq 71(%1), %0; movq %0, 70(%2); testl %k0, %k0; cmovzl 79(%1), %k0; movl %k0, 78(%2); btl $3, 84(%1); setc 82(%2);"
        "movb $1, 83(%2); movq $2, 84(%2)"
        : "=&r"(x) : "r"(from), "r"(to));
}

static void updates(char *to)
{
    uint64_t a = 0, x = 1;
    ASM("addl $1, (%2); incb 5(%2); notw 7(%2); shlq $1, 9(%2); xaddl %k1, 17(%2); btsl $2, 32(%2);"
        "lock cmpxchgq %1, 56(%2); lock cmpxchgl %k1, 64(%2)"
        : "+a"(a), "+r"(x) : "r"(to));
}

static void locked(char *to)
{
    uint64_t x = 1;
    ASM("xchgq %0, 24(%1); lock addq $1, 40(%1); lock xaddl %k0, 48(%1); lock orb $1, 72(%1)" : "+r"(x) : "r"(to));
}

static void strings(char *from, char *to)
{
    const char *f = from;
    char *t = to;
    uint64_t n = 37, a = 0;
    ASM("rep movsb" : "+S"(f), "+D"(t), "+c"(n) : );
    n = 5;
    ASM("rep movsq" : "+S"(f), "+D"(t), "+c"(n) : );
    n = 6;
    ASM("rep stosl" : "+D"(t), "+c"(n) : "a"(0));
    ASM("movsb; movsl; lodsw; stosb; scasb; setne (%1)" : "+S"(f), "+D"(t), "+a"(a) : );
    f = from, t = to, n = 64; // The same for as long as was copied.
    ASM("repe cmpsb" : "+S"(f), "+D"(t), "+c"(n) : );
    t = from + 180, n = 64; // Up to the end of the text.
    ASM("repne scasb" : "+D"(t), "+c"(n) : "a"(0));
    n = 0;
    ASM("rep movsb" : "+S"(f), "+D"(t), "+c"(n) : );
}

static void sse(char *from, char *to)
{
    ASM("movdqu 1(%0), %%xmm0; movdqu %%xmm0, 3(%1); movaps 16(%0), %%xmm1; movaps %%xmm1, 32(%1); movups 33(%0), %%xmm2;"
        "movntdq %%xmm2, 48(%1); movq 49(%0), %%xmm3; movq %%xmm3, 65(%1); movd 57(%0), %%xmm4; movd %%xmm4, 73(%1);"
        "movhps 61(%0), %%xmm4; movhps %%xmm4, 77(%1); movlpd 69(%0), %%xmm4; movlpd %%xmm4, 85(%1); pcmpeqb 80(%0), %%xmm4;"
        "pminub 96(%0), %%xmm4; paddd 112(%0), %%xmm4; movups %%xmm4, 93(%1); movss 129(%0), %%xmm5; movsd %%xmm5, 99(%1);"
        "cvtsi2sdl 133(%0), %%xmm5; movntiq %%rax, 112(%1); pinsrw $1, 137(%0), %%xmm5; movupd %%xmm5, 121(%1);"
        "lddqu 139(%0), %%xmm5; movdqu %%xmm5, 137(%1); prefetcht0 160(%0)"
        : : "r"(from), "r"(to));
}

static void avx(char *from, char *to)
{
    ASM("vmovdqu 1(%0), %%ymm0; vmovdqu %%ymm0, 3(%1); vmovdqa 32(%0), %%ymm1; vmovdqa %%ymm1, 64(%1);"
        "vpcmpeqb 65(%0), %%ymm1, %%ymm2; vpminub 97(%0), %%ymm2, %%ymm3; vpaddd 129(%0), %%ymm3, %%ymm3; vpbroadcastb 161(%0), %%ymm4;"
        "vpor %%ymm3, %%ymm4, %%ymm3; vbroadcastss 163(%0), %%ymm4; vpor %%ymm3, %%ymm4, %%ymm3; vmovdqu %%ymm3, 129(%1);"
        "vbroadcasti128 167(%0), %%ymm4; vextracti128 $1, %%ymm4, 99(%1); vinserti128 $1, 183(%0), %%ymm4, %%ymm4;"
        "vmovntdq %%ymm4, 128(%1); vmovhps 199(%0), %%xmm4, %%xmm5; vmovq %%xmm5, 163(%1); vmovhps %%xmm5, 171(%1); vzeroupper"
        : : "r"(from), "r"(to));
}

// Every other element, and none.
static void masked(char *from, char *to)
{
    static const uint32_t every_other[8] = {~0u, 0, ~0u, 0, ~0u, 0, ~0u, 0}, indices[8] = {0, 9, 2, 5, 11, 3, 8, 1};
    ASM("vmovdqu (%2), %%ymm0; vpmaskmovd 4(%0), %%ymm0, %%ymm1; vpmaskmovd %%ymm1, %%ymm0, 36(%1); vpxor %%ymm2, %%ymm2, %%ymm2;"
        "vpmaskmovq 40(%0), %%ymm2, %%ymm3; vmaskmovps %%ymm3, %%ymm2, 68(%1); vmovdqu (%3), %%ymm3;"
        "vpgatherdd %%ymm0, 4(%0,%%ymm3,4), %%ymm1; vpgatherdd %%ymm2, 4(%0,%%ymm3,4), %%ymm1; vzeroupper"
        : : "r"(from), "r"(to), "r"(every_other), "r"(indices));
}

// What the compiler makes of a loop.
__attribute__((target("avx2"), optimize("O3"))) NAMED static uint32_t loop(void)
{
    uint32_t sum = 0;
    for (int i = 0; i < 64; i++)
        sum += shared.numbers[i];
    return sum;
}

// Of each way that memcpy has for short and medium lengths.
static volatile size_t lengths[] = {256, 1, 3, 29, 47, 100, 190};

NAMED static uint64_t each_class(void)
{
    uint64_t sum = 0;
    lock();
    bool has_avx2 = __builtin_cpu_supports("avx2");
    CLASS(0), bytes();
    CLASS(1), moves(shared.from, shared.to);
    CLASS(2), updates(shared.to);
    CLASS(3), locked(shared.to);
    CLASS(4), strings(shared.from, shared.to);
    CLASS(5), sse(shared.from, shared.to);
    CLASS(6);
    if (has_avx2)
        avx(shared.from, shared.to);
    CLASS(7);
    if (has_avx2)
        masked(shared.from, shared.to);
    CLASS(8);
    sum += has_avx2 ? loop() : 64 * 63 / 2;
    CLASS(9);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        memcpy(shared.to + i, shared.from + 2 * i, lengths[i]);
    CLASS(10), memset(shared.to + 1, 'y', lengths[3]);
    CLASS(11), memcpy(shared.to, shared.from, lengths[0]);
    CLASS(12), sum += strlen(shared.to);
    CLASS(13);
    unlock();
    return sum;
}

static void classes(struct worker *w)
{
    if (each_class() != 199 + 64 * 63 / 2)
        die("the sum is wrong", EIO);
    done[w->index].one++;
}
#endif

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
#ifdef __x86_64__
    {"classes", classes},
#endif
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
