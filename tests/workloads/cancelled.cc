// cancelled THREADS: threads of a C++ program are cancelled in read, in fread and in pthread_cond_wait. Cancelling unwinds the stack,
// which runs destructors: a return address that an observer has replaced would stop that, or kill the program.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <pthread.h>
#include <string>
#include <unistd.h>

static std::atomic<unsigned> destroyed, inside;
static int ends[2];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;

static void die(const char *what)
{
    perror(what);
    exit(70);
}

struct Guard {
    std::string name = "something that is allocated, and freed by the destructor";
    ~Guard() { destroyed++; }
};

struct Locked {
    Locked() { pthread_mutex_lock(&lock); }
    ~Locked() { pthread_mutex_unlock(&lock); }
};

static void *in_read(void *)
{
    Guard guard;
    char byte;
    inside++;
    if (read(ends[0], &byte, 1) < 0)
        die("read");
    return nullptr;
}

static void *in_fread(void *arg)
{
    Guard guard;
    char byte;
    inside++;
    if (fread(&byte, 1, 1, static_cast<FILE *>(arg)) == 0)
        die("fread");
    return nullptr;
}

static void *in_wait(void *)
{
    Guard guard;
    Locked locked;
    inside++;
    for (;;)
        pthread_cond_wait(&never, &lock);
}

int main(int argc, char **argv)
{
    unsigned times = argc > 1 ? static_cast<unsigned>(atoi(argv[1])) : 5;
    if (pipe(ends))
        die("pipe");
    FILE *stream = fdopen(ends[0], "r");
    void *(*const all[])(void *) = {in_read, in_fread, in_wait};
    puts("ready");
    fflush(stdout);
    if (getenv("GO") == nullptr && getchar() == EOF)
        die("getchar");
    for (unsigned i = 0; i < times; i++)
        for (auto one : all) {
            pthread_t thread;
            unsigned before = inside;
            if (pthread_create(&thread, nullptr, one, stream))
                die("pthread_create");
            while (inside == before)
                usleep(1000);
            usleep(10000);
            void *result;
            if (pthread_cancel(thread) || pthread_join(thread, &result) || result != PTHREAD_CANCELED)
                die("a thread was not cancelled");
        }
    // Free, or it was left locked.
    if (pthread_mutex_trylock(&lock))
        die("the mutex is locked");
    printf("{\"workload\":\"cancelled\",\"pid\":%d,\"locks\":[],\"threads\":[],\"facts\":{\"destroyed\":%u}}\n", getpid(),
           destroyed.load());
    return 0;
}
