// ticker RATE SECONDS [LIBRARY]: one thread takes `ticking_lock` RATE times a second and sleeps in between. With LIBRARY, a
// copy of the C library, it does so by that one's functions, which it loads after "go", in a namespace of its own.
#include "truth.h"
#include <dlfcn.h>

pthread_mutex_t ticking_lock = PTHREAD_MUTEX_INITIALIZER;

static int (*lock)(pthread_mutex_t *) = pthread_mutex_lock;
static int (*unlock)(pthread_mutex_t *) = pthread_mutex_unlock;

static void load(const char *library)
{
    void *loaded = dlmopen(LM_ID_NEWLM, library, RTLD_NOW);
    if (loaded) {
        *(void **)&lock = dlsym(loaded, "pthread_mutex_lock");
        *(void **)&unlock = dlsym(loaded, "pthread_mutex_unlock");
    }
    if (!loaded || !lock || !unlock) {
        fprintf(stderr, "failed to load: %s\n", dlerror());
        exit(1);
    }
}

NAMED static void tick(struct lock_truth *truth)
{
    struct section section;
    ACQUIRE_BY(truth, &section, lock(truth->object));
    RELEASE_BY(truth, &section, unlock(truth->object));
}

int main(int argc, char **argv)
{
    uint64_t every = 1000000000 / (uint64_t)number(argc, argv, 1, 100);
    uint64_t duration_ns = (uint64_t)number(argc, argv, 2, 1) * 1000000000;
    struct lock_truth *truth = truth_of("ticking_lock", &ticking_lock);
    ready_and_go();
    if (argc > 3)
        load(argv[3]);
    for (uint64_t begin = now_ns(), next = begin; next - begin < duration_ns; next += every) {
        uint64_t now = now_ns();
        if (now < next)
            sleep_ns(next - now);
        tick(truth);
    }
    thread_done();
    return finish("ticker");
}
