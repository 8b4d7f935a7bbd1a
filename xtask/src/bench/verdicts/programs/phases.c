// A fifth of each second is quiet; in the rest checkpoints hold the lock of the pages while they sync.
#include "program.h"

static pthread_mutex_t pages_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t cache_lock = PTHREAD_MUTEX_INITIALIZER;
static int file;
static uint64_t pages, cached;

static LARGE void read_page(void)
{
    pthread_mutex_lock(&pages_lock);
    pages++;
    work(100);
    pthread_mutex_unlock(&pages_lock);
}

static LARGE void use_cache(void)
{
    pthread_mutex_lock(&cache_lock);
    cached++;
    pthread_mutex_unlock(&cache_lock);
}

static void sync_pages(const char *page, uint64_t first)
{
    for (uint64_t i = first; i < first + 8; i++) {
        if (pwrite(file, page, 4096, (off_t)(i % 64) * 4096) < 0)
            die("pwrite");
        fsync(file);
    }
}

static LARGE void checkpoint(void)
{
    char page[4096] = "page";
    pthread_mutex_lock(&pages_lock); // culprit
    if (!cured)
        sync_pages(page, pages);
    pthread_mutex_unlock(&pages_lock); // culprit
    if (cured)
        sync_pages(page, pages);
}

static void *worker(void *arg)
{
    for (;;) {
        work(15000);
        use_cache();
        read_page();
        did((long)arg);
    }
    return NULL;
}

static void *checkpointer(void *arg)
{
    for (;;) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        if (now.tv_nsec < 200000000)
            sleep_us((200000000 - now.tv_nsec) / 1000);
        else
            checkpoint();
    }
    return NULL;
}

int main(int argc, char **argv)
{
    start(argc, argv);
    file = temporary_file();
    begin(checkpointer, NULL);
    begin_all(worker, 0, 3);
    return answer();
}
