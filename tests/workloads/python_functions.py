# python_functions.py ROUNDS: who holds a lock of Python's, who waits for it, by function.
#   ROUNDS times `refresh` sleeps for 20 ms under a lock for which `look_up` waits from 5 ms on; before that as often `settle` does so under
#   a condition's lock, of the module threading, for which `ask` waits.
# Facts: waits (of each lock).
import os
import sys
import threading
import time

rounds = int(sys.argv[1])
table, change = threading.Lock(), threading.Condition()
meet = threading.Barrier(2)


def refresh():
    meet.wait()
    with table:
        time.sleep(0.02)


def look_up():
    meet.wait()
    time.sleep(0.005)
    with table:
        pass


def settle():
    meet.wait()
    with change:
        time.sleep(0.02)


def ask():
    meet.wait()
    time.sleep(0.005)
    change.acquire()
    change.release()


def follow():
    for _ in range(rounds):
        ask()
        meet.wait()
    for _ in range(rounds):
        look_up()
        meet.wait()


print("ready", flush=True)
sys.stdin.read(1)
thread = threading.Thread(target=follow)
thread.start()
for _ in range(rounds):
    settle()
    meet.wait()
for _ in range(rounds):
    refresh()
    meet.wait()
thread.join()
print(
    '{"workload":"python_functions","pid":%d,"locks":[],"threads":[],"facts":{"waits":%d}}' % (os.getpid(), rounds),
    flush=True,
)
