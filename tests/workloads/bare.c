// bare: a program without any C library (linked with -nostdlib -static): there is nothing in it to probe. It says "ready",
// waits until stdin is closed and exits.
#include <asm/unistd.h>

static long system_call(long number, long a, long b, long c)
{
#if defined(__x86_64__)
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return result;
#elif defined(__aarch64__)
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory");
    return x0;
#endif
}

void _start(void)
{
    char byte;
    system_call(__NR_write, 1, (long)"ready\n", 6);
    while (system_call(__NR_read, 0, (long)&byte, 1) > 0)
        ;
    system_call(__NR_exit_group, 0, 0, 0);
    __builtin_unreachable();
}
