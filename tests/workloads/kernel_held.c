// kernel_held ROUNDS HOLD_US: a kernel lock that is held for as long as the workload likes. `reader` asks for bytes from a
// pipe, or for the entries of a directory, and the page that is to take them is not there: it holds pipe->mutex, or the
// directory's i_rwsem, until main, which gives out the pages of its process (userfaultfd), provides it. Meanwhile `writer`
// wants the same lock, ROUNDS times each, while it holds the mutex `outer`, for which `client` waits.
#include "truth.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define PAGE 4096

enum what { PIPE, DIRECTORY, DONE };

pthread_mutex_t outer = PTHREAD_MUTEX_INITIALIZER;

static struct lock_truth *outer_truth;
static char *page;
static int pipe_ends[2], directory;
// What each thread is to do next; main counts up, the thread follows when it has done it.
static _Atomic int reader_asked, reader_did, writer_asked, writer_did, client_asked, client_did;
static _Atomic int what;
static _Atomic pid_t writer_tid, client_tid;
static _Atomic uint64_t call_ns[2];

static bool next(_Atomic int *asked, int done)
{
    while (*asked == done)
        sleep_ns(100000);
    return what != DONE;
}

NAMED static void *reader(void *arg)
{
    for (int n = 0; next(&reader_asked, n); reader_did = ++n) {
        if (what == PIPE && read(pipe_ends[0], page, 1) != 1)
            die("read", errno);
        if (what == DIRECTORY) {
            if (lseek(directory, 0, SEEK_SET) < 0 || syscall(SYS_getdents64, directory, page, PAGE) <= 0)
                die("getdents64", errno);
        }
    }
    return arg;
}

NAMED static void *writer(void *arg)
{
    writer_tid = my_tid();
    for (int n = 0; next(&writer_asked, n); writer_did = ++n) {
        struct section section;
        ACQUIRE(outer_truth, &section);
        uint64_t called = now_ns();
        if (what == PIPE && write(pipe_ends[1], "x", 1) != 1)
            die("write", errno);
        if (what == DIRECTORY && mkdirat(directory, "entry", 0700) != 0)
            die("mkdirat", errno);
        call_ns[what] += now_ns() - called;
        RELEASE(outer_truth, &section);
        if (what == DIRECTORY && unlinkat(directory, "entry", AT_REMOVEDIR) != 0)
            die("unlinkat", errno);
    }
    thread_done();
    return arg;
}

NAMED static void *client(void *arg)
{
    client_tid = my_tid();
    for (int n = 0; next(&client_asked, n); client_did = ++n) {
        struct section section;
        ACQUIRE(outer_truth, &section);
        RELEASE(outer_truth, &section);
    }
    thread_done();
    return arg;
}

// Whether a thread of this process sleeps and cannot be interrupted, as one does that waits for a kernel lock.
static bool uninterruptible(pid_t tid)
{
    char path[64], line[512];
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", tid);
    FILE *file = fopen(path, "r");
    if (!file)
        die(path, errno);
    char *state = fgets(line, sizeof line, file) ? strrchr(line, ')') : NULL;
    fclose(file);
    return state && state[1] == ' ' && state[2] == 'D';
}

static void await_done(_Atomic int *did, int n)
{
    while (*did != n)
        sleep_ns(100000);
}

static int faults_of(char *memory)
{
    int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
    struct uffdio_api api = {.api = UFFD_API};
    struct uffdio_register range = {.range = {(uint64_t)(uintptr_t)memory, PAGE}, .mode = UFFDIO_REGISTER_MODE_MISSING};
    if (fd < 0 || ioctl(fd, UFFDIO_API, &api) || ioctl(fd, UFFDIO_REGISTER, &range))
        die("userfaultfd", errno);
    return fd;
}

int main(int argc, char **argv)
{
    long rounds = number(argc, argv, 1, 5);
    uint64_t hold = (uint64_t)number(argc, argv, 2, 5000) * 1000;
    char name[] = "/tmp/lockbpf-kernel-held-XXXXXX";
    if (pipe(pipe_ends) || write(pipe_ends[1], "x", 1) != 1 || !mkdtemp(name))
        die("setup", errno);
    directory = open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (directory < 0 || page == MAP_FAILED)
        die("setup", errno);
    int faults = faults_of(page);
    outer_truth = truth_of("outer", &outer);
    pthread_t threads[3];
    MUST(pthread_create(&threads[0], NULL, reader, NULL));
    MUST(pthread_create(&threads[1], NULL, writer, NULL));
    MUST(pthread_create(&threads[2], NULL, client, NULL));
    ready_and_go();
    uint64_t held[2] = {0, 0};
    for (int n = 1; n <= 2 * rounds; n++) {
        struct uffd_msg fault;
        what = n % 2 ? PIPE : DIRECTORY;
        if (madvise(page, PAGE, MADV_DONTNEED))
            die("madvise", errno);
        reader_asked++;
        if (read(faults, &fault, sizeof fault) != sizeof fault)
            die("read of a fault", errno);
        writer_asked++;
        while (writer_tid == 0 || !uninterruptible(writer_tid))
            sleep_ns(100000);
        client_asked++;
        await_blocked(&client_tid, &outer, sizeof outer);
        uint64_t since = now_ns();
        sleep_ns(hold);
        uint64_t held_ns = now_ns() - since;
        held[what] += held_ns;
        outer_truth->wait_min_ns += held_ns;
        outer_truth->contended++;
        struct uffdio_zeropage zero = {.range = {(uint64_t)(uintptr_t)page, PAGE}};
        if (ioctl(faults, UFFDIO_ZEROPAGE, &zero))
            die("UFFDIO_ZEROPAGE", errno);
        await_done(&reader_did, n);
        await_done(&writer_did, n);
        await_done(&client_did, n);
    }
    what = DONE;
    reader_asked++;
    writer_asked++;
    client_asked++;
    for (int i = 0; i < 3; i++)
        MUST(pthread_join(threads[i], NULL));
    rmdir(name);
    fact("rounds", (uint64_t)rounds);
    fact("writer", (uint64_t)writer_tid);
    fact("pipe_wait_min_ns", held[PIPE]);
    fact("pipe_call_ns", call_ns[PIPE]);
    fact("directory_wait_min_ns", held[DIRECTORY]);
    fact("directory_call_ns", call_ns[DIRECTORY]);
    return finish("kernel_held");
}
