// names: one lock in each place that a lock can be in, taken 20 times each. Its truth has the names that the locks should get:
// members of global structures, static variables of functions, objects on the heap, stacks, thread-local variables.
#include "truth.h"

#define ROUNDS 20
#define SESSIONS 3

struct shard {
    long hits;
    pthread_mutex_t lock;
};
struct cache {
    char name[16];
    struct shard shards[4];
    struct {
        int depth;
        pthread_mutex_t nested[2];
    };
};
struct session {
    long id;
    struct {
        int length;
        pthread_mutex_t lock;
    } queue;
};

static struct cache cache;
pthread_mutex_t plain_lock;
static _Thread_local struct shard own;
static _Atomic bool worker_is_ready, worker_may_go;

static const char *text(const char *format, const char *what, int line)
{
    char *out = malloc(128);
    snprintf(out, 128, format, what, line);
    return out;
}

// Takes a lock, in the function that uses this.
#define TAKE(truth, mutex)                                             \
    do {                                                               \
        struct section section;                                        \
        ACQUIRE_BY((truth), &section, pthread_mutex_lock(mutex));      \
        RELEASE_BY((truth), &section, pthread_mutex_unlock(mutex));    \
    } while (0)

enum { SESSION_LINE = __LINE__ + 3 };
NAMED static void use_session(struct session *s, struct lock_truth *truth)
{
    TAKE(truth, &s->queue.lock);
}

enum { BARE_LINE = __LINE__ + 3 };
NAMED static void use_bare(pthread_mutex_t *mutex, struct lock_truth *truth)
{
    TAKE(truth, mutex);
}

NAMED static pthread_mutex_t *static_local(void)
{
    static struct shard hidden = {.lock = PTHREAD_MUTEX_INITIALIZER};
    return &hidden.lock;
}

// A thread with a lock on its stack and one that is its own; it is there before the observation begins.
static void *worker(void *unused)
{
    pthread_mutex_t on_stack = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_init(&own.lock, NULL);
    worker_is_ready = true;
    while (!worker_may_go)
        sleep_ns(1000000);
    struct lock_truth *stack_truth = truth_of(text("stack lock in %s (names.c:%d) #2", "use_bare", BARE_LINE), &on_stack);
    struct lock_truth *own_truth = truth_of("own.lock (thread-local) #2", &own.lock);
    for (int i = 0; i < ROUNDS; i++) {
        use_bare(&on_stack, stack_truth);
        use_bare(&own.lock, own_truth);
    }
    thread_done();
    return unused;
}

int main(void)
{
    pthread_t thread;
    MUST(pthread_create(&thread, NULL, worker, NULL));
    while (!worker_is_ready)
        sleep_ns(1000000);
    ready_and_go();
    pthread_mutex_t on_stack = PTHREAD_MUTEX_INITIALIZER;
    struct session *sessions[SESSIONS];
    struct lock_truth *session_truths[SESSIONS];
    for (int i = 0; i < SESSIONS; i++) {
        const char *nth[SESSIONS] = {"", " #2", " #3"};
        char *format = malloc(64);
        snprintf(format, 64, "session.queue.lock in %%s (names.c:%%d)%s", nth[i]);
        sessions[i] = calloc(1, sizeof *sessions[i]);
        session_truths[i] = truth_of(text(format, "use_session", SESSION_LINE), &sessions[i]->queue.lock);
    }
    pthread_mutex_t *heap = calloc(1, sizeof *heap);
    const struct {
        const char *name;
        pthread_mutex_t *mutex;
    } others[] = {
        {"cache.shards[3].lock", &cache.shards[3].lock},
        {"cache.nested[1]", &cache.nested[1]},
        {"plain_lock", &plain_lock},
        {"static_local::hidden.lock", static_local()},
        {"own.lock (thread-local)", &own.lock},
        {text("stack lock in %s (names.c:%d)", "use_bare", BARE_LINE), &on_stack},
        {text("lock in %s (names.c:%d)", "use_bare", BARE_LINE), heap},
    };
    struct lock_truth *truths[sizeof others / sizeof *others];
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        truths[i] = truth_of(others[i].name, others[i].mutex);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < SESSIONS; i++)
            use_session(sessions[i], session_truths[i]);
        for (size_t i = 0; i < sizeof others / sizeof *others; i++)
            use_bare(others[i].mutex, truths[i]);
    }
    worker_may_go = true;
    MUST(pthread_join(thread, NULL));
    thread_done();
    return finish("names");
}
