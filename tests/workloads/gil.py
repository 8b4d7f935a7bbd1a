# gil.py ROUNDS CALLS: the interpreter's global lock (GIL), held and waited for by design.
#   ROUNDS times the main thread is in C for 20 ms without giving the lock back, while another wants it from 5 ms on;
#   then, as the only thread, it gives it back and takes it again CALLS times.
# Facts: held_ns (at least: when the call ends, the lock is given back at once), waited_ns (as the waiter measures it: with what the system takes to wake it), waits, calls.
import ctypes
import os
import sys
import threading
import time

rounds, calls = int(sys.argv[1]), int(sys.argv[2])
in_c = ctypes.PyDLL(None)
begin, done = threading.Semaphore(0), threading.Semaphore(0)
waited_ns = 0


def wait():
    global waited_ns
    for _ in range(rounds):
        begin.acquire()
        asked = time.monotonic_ns()
        time.sleep(0.005)
        waited_ns += time.monotonic_ns() - asked - 5_000_000
        done.release()


print("ready", flush=True)
sys.stdin.read(1)
thread = threading.Thread(target=wait)
thread.start()
for _ in range(rounds):
    begin.release()
    time.sleep(0.001)
    in_c.usleep(20_000)
    done.acquire()
thread.join()
for _ in range(calls):
    time.sleep(0)
print(
    '{"workload":"gil","pid":%d,"locks":[],"threads":[],"facts":{"held_ns":%d,"waited_ns":%d,"waits":%d,"calls":%d}}'
    % (os.getpid(), rounds * 20_000_000, waited_ns, rounds, calls),
    flush=True,
)
