// A thread for each request; all of them write one log, whose lock is held through a slow call.
#include "program.h"

static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t session_lock = PTHREAD_MUTEX_INITIALIZER;
static struct service collector;
static uint64_t lines, sessions;

static LARGE void send_log(void)
{
    pthread_mutex_lock(&log_lock); // culprit
    lines++;
    if (cured)
        work(500);
    else
        call_service(&collector);
    pthread_mutex_unlock(&log_lock); // culprit
}

static LARGE void find_session(void)
{
    pthread_mutex_lock(&session_lock);
    sessions++;
    work(200);
    pthread_mutex_unlock(&session_lock);
}

static void *handle_request(void *arg)
{
    for (int i = 0; i < 20; i++) {
        work(500);
        find_session();
    }
    send_log();
    return NULL;
}

static void *acceptor(void *arg)
{
    for (;;) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, handle_request, NULL))
            die("pthread_create");
        pthread_join(thread, NULL);
        did((long)arg);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    start(argc, argv);
    connect_service(&collector, 200);
    begin_all(acceptor, 0, 4);
    return answer();
}
