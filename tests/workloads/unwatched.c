// unwatched CALL MS: the main thread keeps a lock for MS ms while three threads wait for it in the system call CALL: flock, fcntl or semop.
// Facts: none.
#include "truth.h"
#include <fcntl.h>
#include <sys/file.h>
#include <sys/ipc.h>
#include <sys/sem.h>

static const char *call;
static char path[] = "/tmp/lockbpf-unwatched-XXXXXX";
static int semaphore;

static void change(int fd, bool take)
{
    struct flock lock = {.l_type = take ? F_WRLCK : F_UNLCK, .l_whence = SEEK_SET};
    struct sembuf by = {0, take ? -1 : 1, 0};
    int failed;
    if (strcmp(call, "flock") == 0)
        failed = flock(fd, take ? LOCK_EX : LOCK_UN);
    else if (strcmp(call, "fcntl") == 0)
        failed = fcntl(fd, F_OFD_SETLKW, &lock);
    else
        failed = semop(semaphore, &by, 1);
    if (failed == -1)
        die(call, errno);
}

static void *want(void *unused)
{
    int fd = open(path, O_RDWR);
    change(fd, true);
    change(fd, false);
    close(fd);
    return unused;
}

int main(int argc, char **argv)
{
    call = argc > 1 ? argv[1] : "flock";
    int fd = mkstemp(path);
    semaphore = semget(IPC_PRIVATE, 1, 0600);
    if (fd == -1 || semaphore == -1 || semctl(semaphore, 0, SETVAL, 1) == -1)
        die("prepare", errno);
    ready_and_go();
    change(fd, true);
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        pthread_create(&threads[i], NULL, want, NULL);
    sleep_ns((uint64_t)number(argc, argv, 2, 1000) * 1000000);
    change(fd, false);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    semctl(semaphore, 0, IPC_RMID);
    unlink(path);
    return finish("unwatched");
}
