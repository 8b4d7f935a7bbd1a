// A loop of known length. To be included after truth.h.

#define LOOP 4

// LOOP instructions an iteration.
NAMED static void loop(long iterations)
{
#if defined(__x86_64__)
    __asm__ volatile("1: nop\n nop\n sub $1, %0\n jnz 1b" : "+r"(iterations) : : "cc");
#elif defined(__aarch64__)
    __asm__ volatile("1: nop\n nop\n subs %0, %0, #1\n b.ne 1b" : "+r"(iterations) : : "cc");
#else
#error "no loop of known length for this processor"
#endif
}
