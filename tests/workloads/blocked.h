// Who sleeps for what: for workloads that wait until they are waited for.
#ifndef BLOCKED_H
#define BLOCKED_H

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/types.h>

// Whether a thread of this process sleeps in a futex call on a word of [object, object + size).
static inline bool blocked_on(pid_t tid, const void *object, size_t size)
{
    char path[64], line[256];
    snprintf(path, sizeof path, "/proc/self/task/%d/syscall", tid);
    FILE *file = fopen(path, "r");
    if (!file)
        return false;
    long call = -1;
    uint64_t word = 0;
    bool blocked = fgets(line, sizeof line, file) && sscanf(line, "%ld %" SCNx64, &call, &word) == 2 && call == SYS_futex
        && word - (uint64_t)(uintptr_t)object < size;
    fclose(file);
    return blocked;
}

#endif
