// heap LOCKS ITERATIONS: locks without a symbol: LOCKS mutexes from malloc (at most 60 of them have their truth printed),
// each locked ITERATIONS times, and one on the stack of main.
#include "truth.h"

#define WITH_TRUTH 60

NAMED static void heap_section(pthread_mutex_t *mutex)
{
    MUST(pthread_mutex_lock(mutex));
    MUST(pthread_mutex_unlock(mutex));
}

NAMED static void truthful_section(struct lock_truth *truth)
{
    struct section section;
    ACQUIRE(truth, &section);
    RELEASE(truth, &section);
}

int main(int argc, char **argv)
{
    long locks = number(argc, argv, 1, 3), iterations = number(argc, argv, 2, 100);
    pthread_mutex_t on_stack;
    MUST(pthread_mutex_init(&on_stack, NULL));
    struct lock_truth *stack_truth = truth_of(NULL, &on_stack);
    pthread_mutex_t **heap = calloc((size_t)locks, sizeof *heap);
    for (long i = 0; i < locks; i++) {
        heap[i] = malloc(sizeof **heap);
        MUST(pthread_mutex_init(heap[i], NULL));
        if (i < WITH_TRUTH)
            truth_of(NULL, heap[i]);
    }
    ready_and_go();
    for (long j = 0; j < iterations; j++) {
        truthful_section(stack_truth);
        for (long i = 0; i < locks; i++) {
            if (i < WITH_TRUTH)
                truthful_section(&truth_locks[i + 1]);
            else
                heap_section(heap[i]);
        }
    }
    thread_done();
    fact("acquisitions", (uint64_t)((locks + 1) * iterations));
    return finish("heap");
}
