// A short section that every operation goes through, and more threads than CPUs.
#include "program.h"

static pthread_mutex_t slots_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t names_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t own_lock[MOST];
static uint64_t slots, names;

static LARGE uint64_t take_slot(long worker)
{
    pthread_mutex_t *lock = cured ? &own_lock[worker] : &slots_lock;
    pthread_mutex_lock(lock); // culprit
    uint64_t slot = slots++;
    work(2500);
    pthread_mutex_unlock(lock); // culprit
    return slot;
}

static LARGE void note_name(void)
{
    pthread_mutex_lock(&names_lock);
    names++;
    pthread_mutex_unlock(&names_lock);
}

static void *worker(void *arg)
{
    for (uint64_t n = 0;; n++) {
        take_slot((long)arg);
        work(300);
        if (n % 16 == 0)
            note_name();
        did((long)arg);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    start(argc, argv);
    for (int i = 0; i < MOST; i++)
        pthread_mutex_init(&own_lock[i], NULL);
    begin_all(worker, 0, 8);
    return answer();
}
