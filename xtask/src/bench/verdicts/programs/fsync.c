// A journal that is made durable while its lock is held.
#include "program.h"

static pthread_mutex_t journal_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t index_lock = PTHREAD_MUTEX_INITIALIZER;
static int journal;
static uint64_t index_size, unflushed;

static LARGE void add_to_index(void)
{
    pthread_mutex_lock(&index_lock);
    index_size++;
    work(100);
    pthread_mutex_unlock(&index_lock);
}

static LARGE void append_record(const char *record, size_t size)
{
    pthread_mutex_lock(&journal_lock); // culprit
    if (pwrite(journal, record, size, (off_t)(unflushed % 65536 * size)) != (ssize_t)size)
        die("pwrite");
    if (++unflushed % 2 == 0 && !cured)
        fdatasync(journal);
    pthread_mutex_unlock(&journal_lock); // culprit
}

static void *worker(void *arg)
{
    char record[64] = "record";
    for (;;) {
        for (int i = 0; i < 10; i++) {
            work(1000);
            add_to_index();
        }
        append_record(record, sizeof record);
        did((long)arg);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    start(argc, argv);
    journal = temporary_file();
    begin_all(worker, 0, 4);
    return answer();
}
