// Linked statically, without symbols and debug information.
#include "program.h"

static pthread_mutex_t routes_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t peers_lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t routes, peers;
extern const char __start_culprit_text[], __stop_culprit_text[];

__attribute__((section("culprit_text"))) static LARGE void reload_routes(void)
{
    pthread_mutex_lock(&routes_lock);
    routes = 0;
    if (!cured)
        sleep_us(2000);
    pthread_mutex_unlock(&routes_lock);
}

static LARGE void find_route(void)
{
    pthread_mutex_lock(&routes_lock);
    routes++;
    work(200);
    pthread_mutex_unlock(&routes_lock);
}

static LARGE void find_peer(void)
{
    pthread_mutex_lock(&peers_lock);
    peers++;
    pthread_mutex_unlock(&peers_lock);
}

static void *worker(void *arg)
{
    for (;;) {
        work(15000);
        find_peer();
        find_route();
        did((long)arg);
    }
    return NULL;
}

static void *reloader(void *arg)
{
    for (;;) {
        reload_routes();
        sleep_us(500);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    start(argc, argv);
    tell_lock(&routes_lock, sizeof routes_lock);
    printf(" place=%p-%p", (const void *)__start_culprit_text, (const void *)__stop_culprit_text);
    begin(reloader, NULL);
    begin_all(worker, 0, 3);
    return answer();
}
