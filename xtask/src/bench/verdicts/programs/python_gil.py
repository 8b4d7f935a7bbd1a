# One thread sorts a long list again and again, which holds the interpreter's lock from its beginning to its end; the others
# answer short requests.
import random
import socket
import sys
import threading
import time

cured = sys.argv[1:] == ["cured"]
numbers = [random.random() for _ in range(100_000)]
stats, stats_lock = 0, threading.Lock()
done = [0] * 3


def sort_report():
    ordered = list(numbers)
    ordered.sort()  # culprit
    return ordered[0]


def count():
    global stats
    with stats_lock:
        stats += 1


def answer(number):
    near, far = socket.socketpair()
    while True:
        near.send(b"request")
        far.recv(16)
        count()
        done[number] += 1


def report():
    while True:
        if cured:
            time.sleep(0.03)
        else:
            sort_report()


for number in range(3):
    threading.Thread(target=answer, args=(number,), daemon=True).start()
threading.Thread(target=report, daemon=True).start()
print("ready", flush=True)
for line in sys.stdin:
    print(sum(done), flush=True)
