// Processes that share a mutex in shared memory; one of them refreshes what it protects, and takes its time.
#include "program.h"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <signal.h>

static struct board {
    struct done done[MOST];
    pthread_mutex_t lock, side;
    uint64_t entries;
} *board;

static LARGE void refresh_board(void)
{
    pthread_mutex_lock(&board->lock); // culprit
    board->entries = 0;
    if (!cured)
        sleep_us(2000);
    pthread_mutex_unlock(&board->lock); // culprit
}

static LARGE void post_entry(void)
{
    pthread_mutex_lock(&board->lock);
    board->entries++;
    work(300);
    pthread_mutex_unlock(&board->lock);
}

static LARGE void read_side(void)
{
    pthread_mutex_lock(&board->side);
    work(100);
    pthread_mutex_unlock(&board->side);
}

static void poster(long number)
{
    for (;;) {
        work(15000);
        read_side();
        post_entry();
        did(number);
    }
}

static void refresher(void)
{
    for (;;) {
        refresh_board();
        sleep_us(500);
    }
}

int main(int argc, char **argv)
{
    start(argc, argv);
    board = (struct board *)mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED)
        die("mmap");
    done = board->done;
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(&board->lock, &attributes);
    pthread_mutex_init(&board->side, &attributes);
    tell_lock(&board->lock, sizeof board->lock);
    fflush(stdout);
    printf(" pids=");
    int pids[4];
    fflush(stdout);
    for (long i = 0; i < 4; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (i == 0)
                refresher();
            poster(i);
        }
    }
    for (int i = 0; i < 4; i++)
        printf("%s%d", i ? "," : "", pids[i]);
    return answer();
}
