# Uses locks of Python's while a second thread sleeps. Speaks as pairs.c does: "WHAT MS" a line, answered by how many uses were
# made, how long that took in ns, and the thread's CPU time for it in ns.
import sys
import threading
import time

BATCH = 100
lock = threading.Lock()


def python_lock():
    for _ in range(BATCH):
        lock.acquire()
        lock.release()


def gil():
    for _ in range(BATCH):
        time.sleep(0)


uses = {"python_lock": python_lock, "gil": gil}
threading.Thread(target=threading.Event().wait, daemon=True).start()
for line in sys.stdin:
    what, milliseconds = line.split()
    work, end = uses[what], int(milliseconds) * 1_000_000
    made, cpu, begin = 0, time.thread_time_ns(), time.monotonic_ns()
    while True:
        work()
        made += BATCH
        now = time.monotonic_ns()
        if now - begin >= end:
            break
    print(made, now - begin, time.thread_time_ns() - cpu, flush=True)
