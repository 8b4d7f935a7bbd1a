// interrupted SIGNALS [n]: threads contend for one lock, and so many signals interrupt them meanwhile, whose handler contends for another: some
// between the call of pthread_mutex_lock and the moment when that begins to wait. With n they take a third lock inside of the first one.
// Facts: handled.
#include "truth.h"

#include <signal.h>

#define THREADS 3
#define SECTION_NS 10000
#define PAUSE_NS 20000

pthread_mutex_t outer_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t nested_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t handler_lock = PTHREAD_MUTEX_INITIALIZER;

static struct lock_truth *outer, *nested, *in_handler;
static bool nests;
static _Atomic uint64_t handled, wanted;

static void work(void)
{
    uint64_t until = now_ns() + SECTION_NS;
    while (now_ns() < until)
        ;
}

static void handle(int signal)
{
    int error = errno;
    struct section section;
    handled++;
    ACQUIRE(in_handler, &section);
    sleep_ns(1000);
    RELEASE(in_handler, &section);
    errno = error;
    (void)signal;
}

static void *contend(void *arg)
{
    struct section section, inside;
    while (handled < wanted) {
        ACQUIRE(outer, &section);
        if (nests) {
            ACQUIRE(nested, &inside);
            work();
            RELEASE(nested, &inside);
        } else {
            work();
        }
        RELEASE(outer, &section);
    }
    thread_done();
    return arg;
}

static void *bombard(void *arg)
{
    pthread_t *threads = arg;
    while (handled < wanted) {
        for (int i = 0; i < THREADS; i++)
            MUST(pthread_kill(threads[i], SIGPROF));
        sleep_ns(PAUSE_NS);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    wanted = (uint64_t)number(argc, argv, 1, 1000);
    nests = argc > 2 && strchr(argv[2], 'n') != NULL;
    outer = truth_of("outer_lock", &outer_lock);
    if (nests)
        nested = truth_of("nested_lock", &nested_lock);
    in_handler = truth_of("handler_lock", &handler_lock);
    struct sigaction action = {.sa_handler = handle, .sa_flags = SA_RESTART};
    if (sigaction(SIGPROF, &action, NULL))
        die("sigaction", errno);
    ready_and_go();

    pthread_t threads[THREADS], bomber;
    for (int i = 0; i < THREADS; i++)
        MUST(pthread_create(&threads[i], NULL, contend, NULL));
    MUST(pthread_create(&bomber, NULL, bombard, threads));
    // A signal may be sent to a thread that has ended, but to none that was joined.
    MUST(pthread_join(bomber, NULL));
    for (int i = 0; i < THREADS; i++)
        MUST(pthread_join(threads[i], NULL));
    fact("handled", handled);
    thread_done();
    return finish("interrupted");
}
