// Programs that are hard to observe. `storm KIND NUMBER LIBRARY`: NUMBER threads or processes come and go, a crowd of NUMBER threads is
// there at one time, NUMBER futex words or locks are used once each, or for NUMBER hundredths of a second the program loads and unloads
// LIBRARY, renames itself, replaces its own code and its namespaces, or it makes code and lists NUMBER MiB of functions in a perf map that grows
// for four seconds; `storm libraries SECONDS FILE…` takes locks in each of the files.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define AT_ONCE 100
#define PAGE 4096

static pthread_mutex_t storm_lock = PTHREAD_MUTEX_INITIALIZER;

static void *passer(void *none) {
    pthread_mutex_lock(&storm_lock);
    usleep(10);
    pthread_mutex_unlock(&storm_lock);
    return none;
}

static void threads(int number) {
    pthread_t all[AT_ONCE];
    for (int done = 0; done < number; done += AT_ONCE) {
        int begun = 0;
        while (begun < AT_ONCE && !pthread_create(&all[begun], NULL, passer, NULL)) begun++;
        while (begun > 0) pthread_join(all[--begun], NULL);
    }
}

static void processes(int number) {
    for (int begun = 0; begun < number; begun++) {
        if (begun >= AT_ONCE) wait(NULL);
        if (fork() == 0) {
            pthread_t other;
            if (!pthread_create(&other, NULL, passer, NULL)) {
                passer(NULL);
                pthread_join(other, NULL);
            }
            _exit(0);
        }
    }
    while (wait(NULL) > 0) {}
}

static pthread_mutex_t crowd_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t crowd_over = PTHREAD_COND_INITIALIZER;
static int is_over;

static void *waiter(void *none) {
    pthread_mutex_lock(&crowd_lock);
    while (!is_over) pthread_cond_wait(&crowd_over, &crowd_lock);
    pthread_mutex_unlock(&crowd_lock);
    return none;
}

static void crowd(int number) {
    pthread_t *all = calloc(number, sizeof *all);
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 1 << 16);
    int begun = 0;
    while (begun < number && !pthread_create(&all[begun], &small, waiter, NULL)) begun++;
    printf("%d threads\n", begun);
    fflush(stdout);
    pthread_mutex_lock(&crowd_lock);
    is_over = 1;
    pthread_cond_broadcast(&crowd_over);
    pthread_mutex_unlock(&crowd_lock);
    while (begun > 0) pthread_join(all[--begun], NULL);
}

// Each word is waited for, mostly in vain, and woken.
static void words(int number) {
    int *all = calloc(number, sizeof *all);
    struct timespec soon = {0, 1000};
    for (int n = 0; n < number; n++) {
        syscall(SYS_futex, &all[n], FUTEX_WAIT, n % 4096 ? 1 : 0, &soon, NULL, 0);
        syscall(SYS_futex, &all[n], FUTEX_WAKE, 1, NULL, NULL, 0);
    }
}

static void locks(int number) {
    pthread_mutex_t *all = calloc(number, sizeof *all);
    for (int n = 0; n < number; n++) {
        pthread_mutex_lock(&all[n]);
        pthread_mutex_unlock(&all[n]);
    }
}

static void *holder(void *none) {
    while (passer(none) == none) {}
    return none;
}

// A page of code of its own, which is put in place of itself again and again.
__attribute__((aligned(PAGE), noinline, section(".text.replaced"))) static int replaced(int n) {
    passer(NULL);
    return n + 1;
}

static void replace(void) {
    void *page = (void *)((unsigned long)replaced & -PAGE);
    void *copy = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (copy == MAP_FAILED) return;
    memcpy(copy, page, PAGE);
    mprotect(copy, PAGE, PROT_READ | PROT_EXEC);
    mremap(copy, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, page);
}

static void restless(int hundredths, const char *library) {
    pthread_t other;
    pthread_create(&other, NULL, holder, NULL);
    for (int n = 0; n < hundredths; n++) {
        char name[16];
        snprintf(name, sizeof name, "storm%d", n);
        prctl(PR_SET_NAME, name);
        void *loaded = dlopen(library, RTLD_NOW);
        unshare(CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC);
        replace();
        replaced(n);
        usleep(10000);
        if (loaded) dlclose(loaded);
    }
}

#ifdef __x86_64__
// push rbp; mov rbp, rsp; call rdi; pop rbp; ret
static const unsigned char made[] = {0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3};
#else
// stp x29, x30, [sp, -16]!; mov x29, sp; blr x0; ldp x29, x30, [sp], 16; ret
static const unsigned made[] = {0xa9bf7bfd, 0x910003fd, 0xd63f0000, 0xa8c17bfd, 0xd65f03c0};
#endif

static void rest(void) {
    pthread_mutex_lock(&storm_lock);
    usleep(2000);
    pthread_mutex_unlock(&storm_lock);
}

static void *run_made(void *code) {
    for (;;) ((void (*)(void (*)(void)))code)(rest);
    return NULL;
}

// Code that nobody but this program knows: each time a part of the map is added, threads wait in it.
static void map(int mib) {
    void *code = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (code == MAP_FAILED) return;
    memcpy(code, made, sizeof made);
    mprotect(code, PAGE, PROT_READ | PROT_EXEC);
    __builtin___clear_cache(code, (char *)code + sizeof made);
    pthread_t others[2];
    for (int n = 0; n < 2; n++) pthread_create(&others[n], NULL, run_made, code);
    char path[64];
    snprintf(path, sizeof path, "/tmp/perf-%d.map", getpid());
    // Where somebody else has put something there, nothing is written.
    FILE *file = fopen(path, "wx");
    if (!file) return;
    fprintf(file, "%lx %zx made_function\n", (unsigned long)code, sizeof made);
    long written = 0, wanted = (long)mib << 20;
    for (int part = 1; part <= 40; part++) {
        while (written < wanted / 40 * part)
            written += fprintf(file, "%lx 10 a_function_of_which_there_are_many_%ld\n", 0x10000 + written, written);
        fflush(file);
        usleep(100000);
    }
    fclose(file);
    unlink(path);
}

static int (**takers)(void);
static int taken_of;

static void *taker(void *none) {
    for (;;)
        for (int n = 0; n < taken_of; n++) takers[n]();
    return none;
}

static void libraries(int seconds, int number, char **files) {
    takers = calloc(number + 1, sizeof *takers);
    for (int n = 0; n < number; n++) {
        void *loaded = dlopen(files[n], RTLD_NOW | RTLD_LOCAL);
        int (*take)(void) = loaded ? (int (*)(void))dlsym(loaded, "take") : NULL;
        if (take) takers[taken_of++] = take;
    }
    printf("%d\n", taken_of);
    fflush(stdout);
    pthread_t all[2];
    for (int n = 0; n < 2 && taken_of; n++) pthread_create(&all[n], NULL, taker, NULL);
    sleep(seconds);
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    int number = atoi(argv[2]);
    // lockbpf may need a moment after this program's start.
    if (strcmp(argv[1], "libraries") != 0) {
        puts("ready");
        fflush(stdout);
        getchar();
    }
    if (!strcmp(argv[1], "threads")) threads(number);
    if (!strcmp(argv[1], "processes")) processes(number);
    if (!strcmp(argv[1], "crowd")) crowd(number);
    if (!strcmp(argv[1], "words")) words(number);
    if (!strcmp(argv[1], "locks")) locks(number);
    if (!strcmp(argv[1], "restless")) restless(number, argc > 3 ? argv[3] : "libm.so.6");
    if (!strcmp(argv[1], "map")) map(number);
    if (!strcmp(argv[1], "libraries")) libraries(number, argc - 3, argv + 3);
    return 0;
}
