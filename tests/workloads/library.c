// library ROUNDS ITERATIONS: ROUNDS times pthread_once calls a loop of 4 instructions, ITERATIONS times; after each, one byte is written by
// one call of write.
// Facts: `instructions` of all loops together.
#include "truth.h"
#include "loop.h"
#include <fcntl.h>

#define MAX_ROUNDS 100

static pthread_once_t once[MAX_ROUNDS];
static long iterations;

NAMED static void known_loop(void)
{
    loop(iterations);
}

int main(int argc, char **argv)
{
    long rounds = number(argc, argv, 1, 20);
    iterations = number(argc, argv, 2, 250000);
    int null = open("/dev/null", O_WRONLY);
    if (null < 0 || rounds > MAX_ROUNDS)
        die("library", EINVAL);
    ready_and_go();
    for (long i = 0; i < rounds; i++) {
        once[i] = (pthread_once_t)PTHREAD_ONCE_INIT;
        MUST(pthread_once(&once[i], known_loop));
        if (write(null, "x", 1) != 1)
            die("write", errno);
    }
    fact("instructions", (uint64_t)rounds * (uint64_t)iterations * LOOP);
    return finish("library");
}
