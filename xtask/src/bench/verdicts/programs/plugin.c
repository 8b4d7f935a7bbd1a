// The library that plugin_host.c loads.
#include "program.h"

static pthread_mutex_t plugin_lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t processed;

void process_item(void)
{
    pthread_mutex_lock(&plugin_lock);
    processed++;
    work(300);
    pthread_mutex_unlock(&plugin_lock);
}

void flush_plugin(int slowly)
{
    pthread_mutex_lock(&plugin_lock); // culprit
    processed = 0;
    if (slowly)
        sleep_us(5000);
    pthread_mutex_unlock(&plugin_lock); // culprit
}
