// Loads a library with a lock of its own when it is told to.
#include "program.h"

#include <dlfcn.h>

static pthread_mutex_t items_lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t items;
static void (*process_item)(void);
static void (*flush_plugin)(int);

static LARGE void next_item(void)
{
    pthread_mutex_lock(&items_lock);
    items++;
    pthread_mutex_unlock(&items_lock);
}

static void *worker(void *arg)
{
    for (;;) {
        work(10000);
        next_item();
        void (*process)(void) = __atomic_load_n(&process_item, __ATOMIC_ACQUIRE);
        if (process)
            process();
        did((long)arg);
    }
    return NULL;
}

static void *loader(void *arg)
{
    while (!is_told())
        sleep_us(10000);
    void *library = dlopen((const char *)arg, RTLD_NOW);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    flush_plugin = (void (*)(int))dlsym(library, "flush_plugin");
    __atomic_store_n(&process_item, (void (*)(void))dlsym(library, "process_item"), __ATOMIC_RELEASE);
    for (;;) {
        flush_plugin(!cured);
        sleep_us(500);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    static char path[4096];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 16);
    if (length < 0)
        die("readlink");
    strcpy(strrchr(path, '/'), "/libplugin.so");
    start(argc, argv);
    begin(loader, path);
    begin_all(worker, 0, 3);
    return answer();
}
