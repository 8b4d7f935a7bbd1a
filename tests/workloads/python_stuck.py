# python_stuck.py: two threads wait for each other's lock for ever, and a third one waits for work, in vain. "ready" is printed once all of them sleep.
import queue
import sys
import threading
import time

left, right = threading.Lock(), threading.Lock()
meet = threading.Barrier(2)
work = queue.Queue()


def take_left():
    with left:
        meet.wait()
        with right:
            pass


def take_right():
    with right:
        meet.wait()
        with left:
            pass


def idle():
    work.get()


for target in take_left, take_right, idle:
    threading.Thread(target=target, daemon=True).start()
time.sleep(0.3)
print("ready", flush=True)
sys.stdin.read(1)
