// taskqueues THREADS TASKS WORK_US PATCH_US [split] [sleep]: task queues as SPLASH-2's Radiosity has them. Each thread owns a
// queue with a lock (`queue_lock`, an array) and works it off; when it is empty, the thread steals from the others. A
// task computes for WORK_US outside of any lock, then updates patches for PATCH_US under one global lock (`patch_lock`),
// which also guards the list of free tasks, from which each of its two successors is taken. With `split`, the free list
// has a lock of its own and each patch too (`patch_locks`): the same work, without the bottleneck. With `sleep`, updates
// sleep instead of computing, so that the bottleneck shows on any number of CPUs, however busy they are.
//
// All tasks start in the first thread's queue and spawn their successors into the queue of whoever runs them: stealing
// spreads them. Every task is run exactly once.
#include "truth.h"

#define MAX_QUEUES 16
#define PATCHES 16

struct task {
    struct task *next;
    unsigned patch;
};

struct queue {
    struct task *head;
};

pthread_mutex_t patch_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t free_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t queue_lock[MAX_QUEUES];
pthread_mutex_t patch_locks[PATCHES];

static struct lock_truth *patch_truth, *free_truth, *queue_truth[MAX_QUEUES], *patches_truth[PATCHES];
static char queue_names[MAX_QUEUES][32], patch_names[PATCHES][32];
static struct queue queues[MAX_QUEUES];
static struct task *tasks, *free_tasks;
static _Atomic long left_to_run, steals;
static long threads;
static bool split, asleep;
static uint64_t work_ns, patch_ns, patch_value[PATCHES];

static uint64_t my_cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

// Computes: takes CPU time, however long that takes on a busy machine.
static void compute(uint64_t ns)
{
    uint64_t until = my_cpu_ns() + ns;
    while (my_cpu_ns() < until)
        ;
}

NAMED static struct task *allocate_task(void)
{
    struct section section;
    struct lock_truth *truth = split ? free_truth : patch_truth;
    ACQUIRE(truth, &section);
    struct task *task = free_tasks;
    if (task)
        free_tasks = task->next;
    RELEASE(truth, &section);
    return task;
}

NAMED static void enqueue_task(long queue, struct task *task)
{
    struct section section;
    ACQUIRE(queue_truth[queue], &section);
    task->next = queues[queue].head;
    queues[queue].head = task;
    RELEASE(queue_truth[queue], &section);
}

NAMED static struct task *dequeue_task(long queue)
{
    struct section section;
    ACQUIRE(queue_truth[queue], &section);
    struct task *task = queues[queue].head;
    if (task)
        queues[queue].head = task->next;
    RELEASE(queue_truth[queue], &section);
    return task;
}

NAMED static void update_patch(unsigned patch)
{
    struct section section;
    struct lock_truth *truth = split ? patches_truth[patch] : patch_truth;
    ACQUIRE(truth, &section);
    patch_value[patch]++;
    if (asleep)
        sleep_ns(patch_ns);
    else
        compute(patch_ns);
    RELEASE(truth, &section);
}

static void run_task(long me, struct task *task)
{
    compute(work_ns);
    update_patch(task->patch);
    for (int i = 0; i < 2; i++) {
        struct task *successor = allocate_task();
        if (successor)
            enqueue_task(me, successor);
    }
    left_to_run--;
}

static void *worker(void *arg)
{
    long me = (long)arg;
    while (left_to_run > 0) {
        struct task *task = NULL;
        for (long i = 0; i < threads && !task; i++) {
            task = dequeue_task((me + i) % threads);
            if (task && i > 0)
                steals++;
        }
        if (task)
            run_task(me, task);
        else
            sleep_ns(50000);
    }
    thread_done();
    return NULL;
}

int main(int argc, char **argv)
{
    threads = number(argc, argv, 1, 4);
    long count = number(argc, argv, 2, 1000);
    work_ns = (uint64_t)number(argc, argv, 3, 100) * 1000;
    patch_ns = (uint64_t)number(argc, argv, 4, 50) * 1000;
    for (int i = 5; i < argc; i++) {
        split |= strcmp(argv[i], "split") == 0;
        asleep |= strcmp(argv[i], "sleep") == 0;
    }
    if (threads < 1 || threads > MAX_QUEUES || count < 1)
        die("taskqueues", EINVAL);
    patch_truth = truth_of("patch_lock", &patch_lock);
    free_truth = truth_of("free_lock", &free_lock);
    for (long i = 0; i < threads; i++) {
        MUST(pthread_mutex_init(&queue_lock[i], NULL));
        snprintf(queue_names[i], sizeof queue_names[i], "queue_lock[%d]", (int)i);
        queue_truth[i] = truth_of(queue_names[i], &queue_lock[i]);
    }
    for (long i = 0; i < PATCHES; i++) {
        MUST(pthread_mutex_init(&patch_locks[i], NULL));
        snprintf(patch_names[i], sizeof patch_names[i], "patch_locks[%d]", (int)i);
        patches_truth[i] = truth_of(patch_names[i], &patch_locks[i]);
    }
    tasks = calloc((size_t)count, sizeof *tasks);
    if (!tasks)
        die("taskqueues", ENOMEM);
    for (long i = 0; i < count; i++)
        tasks[i] = (struct task){.next = i + 1 < count ? &tasks[i + 1] : NULL, .patch = (unsigned)(i % PATCHES)};
    left_to_run = count;
    // The first task; all others come from the free list.
    free_tasks = tasks->next;
    tasks->next = NULL;
    queues[0].head = tasks;
    ready_and_go();
    uint64_t begin = now_ns();
    pthread_t thread[MAX_QUEUES];
    for (long i = 0; i < threads; i++)
        MUST(pthread_create(&thread[i], NULL, worker, (void *)i));
    for (long i = 0; i < threads; i++)
        MUST(pthread_join(thread[i], NULL));
    uint64_t updates = 0;
    for (int i = 0; i < PATCHES; i++)
        updates += patch_value[i];
    fact("elapsed_ns", now_ns() - begin);
    fact("tasks", (uint64_t)count);
    fact("updates", updates);
    fact("steals", (uint64_t)steals);
    return finish("taskqueues");
}
