// Most wait for `accounts_lock`; whoever holds that waits for `audit_lock`, which is held through a slow call.
#include "program.h"

static pthread_mutex_t accounts_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t audit_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t rates_lock = PTHREAD_MUTEX_INITIALIZER;
static struct service archive;
static uint64_t sum;

static LARGE void read_balance(void)
{
    pthread_mutex_lock(&accounts_lock);
    sum++;
    work(300);
    pthread_mutex_unlock(&accounts_lock);
}

static LARGE void read_rates(void)
{
    pthread_mutex_lock(&rates_lock);
    work(200);
    pthread_mutex_unlock(&rates_lock);
}

static LARGE void transfer(void)
{
    pthread_mutex_lock(&accounts_lock);
    work(500);
    pthread_mutex_lock(&audit_lock);
    work(200);
    pthread_mutex_unlock(&audit_lock);
    pthread_mutex_unlock(&accounts_lock);
}

static LARGE void rotate_audit(void)
{
    if (cured)
        call_service(&archive);
    pthread_mutex_lock(&audit_lock); // culprit
    if (!cured)
        call_service(&archive);
    pthread_mutex_unlock(&audit_lock); // culprit
}

static void *reader(void *arg)
{
    for (;;) {
        work(15000);
        read_rates();
        read_balance();
        did((long)arg);
    }
    return NULL;
}

static void *mover(void *arg)
{
    for (;;) {
        work(20000);
        transfer();
        did((long)arg);
    }
    return NULL;
}

static void *auditor(void *arg)
{
    for (;;) {
        rotate_audit();
        sleep_us(300);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    start(argc, argv);
    connect_service(&archive, 2000);
    begin(auditor, NULL);
    begin_all(reader, 0, 3);
    begin_all(mover, 3, 1);
    return answer();
}
