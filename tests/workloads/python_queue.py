# python_queue.py ROUNDS: three threads get numbers from a `queue.Queue`, two each time, and handle each for 2 ms under a lock. From Python 3.13 on two
# more wait for a `SimpleQueue`, which is posted as often (before, who gets something from one takes and gives a semaphore as if it were a lock).
# Those who wait for the queues are idle; who waits for `table` waits for a lock.
# Facts: lock_wait_ns (as the threads measure it: with what the system takes to wake them), handled.
import os
import queue
import sys
import threading
import time

rounds = int(sys.argv[1])
table = threading.Lock()
work, small = queue.Queue(), queue.SimpleQueue()
waited = []
handled = 0


def handle():
    global handled
    asked = time.monotonic_ns()
    with table:
        waited.append(time.monotonic_ns() - asked)
        handled += 1
        time.sleep(0.002)


def serve():
    while work.get() is not None:
        handle()


def look():
    while small.get() is not None:
        pass


lookers = [look] * 2 if sys.version_info >= (3, 13) else []
threads = [threading.Thread(target=target) for target in [serve] * 3 + lookers]
for thread in threads:
    thread.start()
print("ready", flush=True)
sys.stdin.read(1)
for number in range(rounds):
    for _ in range(2):
        work.put(number)
        small.put(number)
    time.sleep(0.01)
for _ in range(3):
    work.put(None)
for _ in range(2):
    small.put(None)
for thread in threads:
    thread.join()
print(
    '{"workload":"python_queue","pid":%d,"locks":[],"threads":[],"facts":{"lock_wait_ns":%d,"handled":%d}}'
    % (os.getpid(), sum(waited), handled),
    flush=True,
)
