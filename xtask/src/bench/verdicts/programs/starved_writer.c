// Readers whose long sections overlap, so that the writer rarely finds the lock free. Updates count.
#include "program.h"

static pthread_rwlock_t table_lock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_mutex_t stats_lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t rows, scans;

static LARGE void scan_table(void)
{
    pthread_rwlock_rdlock(&table_lock); // culprit
    work(cured ? 2000 : 300000);
    pthread_rwlock_unlock(&table_lock); // culprit
    if (cured)
        work(298000);
}

static LARGE void update_row(void)
{
    pthread_rwlock_wrlock(&table_lock);
    rows++;
    work(1000);
    pthread_rwlock_unlock(&table_lock);
}

static LARGE void count_scan(void)
{
    pthread_mutex_lock(&stats_lock);
    scans++;
    pthread_mutex_unlock(&stats_lock);
}

static void *reader(void *arg)
{
    for (;;) {
        scan_table();
        for (int i = 0; i < 100; i++)
            count_scan();
        sleep_us(60);
    }
    return NULL;
}

static void *writer(void *arg)
{
    for (;;) {
        update_row();
        work(5000);
        for (int i = 0; i < 5; i++)
            count_scan();
        did((long)arg);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    start(argc, argv);
    begin_all(reader, 1, 2);
    begin_all(writer, 0, 1);
    return answer();
}
