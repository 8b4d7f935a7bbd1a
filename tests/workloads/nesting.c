// nesting DEPTH ROUNDS: takes `level[0..DEPTH]` from the outside in and releases them from the inside out, 1 ms at the
// bottom. The thread holds at least one lock for `union_ns` (at least) and `union_max_ns` (at most).
#include "truth.h"

#define MAX_DEPTH 32

pthread_mutex_t level[MAX_DEPTH];

static struct lock_truth *truth[MAX_DEPTH];
static char names[MAX_DEPTH][24];

NAMED static void descend(int depth, int bottom)
{
    struct section section;
    ACQUIRE(truth[depth], &section);
    if (depth + 1 < bottom)
        descend(depth + 1, bottom);
    else
        sleep_ns(1000000);
    RELEASE(truth[depth], &section);
}

int main(int argc, char **argv)
{
    int depth = (int)number(argc, argv, 1, 8);
    long rounds = number(argc, argv, 2, 20);
    if (depth < 1 || depth > MAX_DEPTH)
        die("nesting", EINVAL);
    for (int i = 0; i < depth; i++) {
        MUST(pthread_mutex_init(&level[i], NULL));
        snprintf(names[i], sizeof names[i], "level[%d]", (int)i);
        truth[i] = truth_of(names[i], &level[i]);
    }
    ready_and_go();
    for (long i = 0; i < rounds; i++)
        descend(0, depth);
    thread_done();
    fact("union_ns", truth[0]->hold_ns);
    fact("union_max_ns", truth[0]->span_ns);
    return finish("nesting");
}
