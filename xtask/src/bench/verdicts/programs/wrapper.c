// A program in which one function locks for all others.
#include "program.h"

static pthread_mutex_t db_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t pool_mutex = PTHREAD_MUTEX_INITIALIZER;
static uint64_t rows, free_pages, locked;

static LARGE void db_lock(void)
{
    pthread_mutex_lock(&db_mutex);
    locked++;
}

static LARGE void db_unlock(void)
{
    locked--;
    pthread_mutex_unlock(&db_mutex);
}

static LARGE void get_row(void)
{
    db_lock();
    work(300);
    db_unlock();
}

static LARGE void put_row(void)
{
    db_lock();
    rows++;
    work(600);
    db_unlock();
}

static LARGE void vacuum(void)
{
    if (cured)
        work(3000000);
    db_lock(); // culprit
    work(cured ? 1000 : 3000000);
    rows = 0;
    db_unlock(); // culprit
}

static LARGE void take_page(void)
{
    pthread_mutex_lock(&pool_mutex);
    free_pages++;
    pthread_mutex_unlock(&pool_mutex);
}

static void *worker(void *arg)
{
    for (;;) {
        work(15000);
        take_page();
        get_row();
        get_row();
        put_row();
        did((long)arg);
    }
    return NULL;
}

static void *cleaner(void *arg)
{
    for (;;) {
        vacuum();
        sleep_us(300);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    start(argc, argv);
    begin(cleaner, NULL);
    begin_all(worker, 0, 3);
    return answer();
}
