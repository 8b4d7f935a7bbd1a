# A cache that is refreshed while its threading.Lock is held.
import ctypes
import sys
import threading
import time

cured = sys.argv[1:] == ["cured"]
cache, cache_lock = {}, threading.Lock()
stats, stats_lock = 0, threading.Lock()
done = [0] * 3


def refresh_cache():
    with cache_lock:  # culprit
        cache.clear()
        if not cured:
            time.sleep(0.005)
    if cured:
        time.sleep(0.005)


def look_up(key):
    with cache_lock:
        return cache.setdefault(key % 100, key)


def count():
    global stats
    with stats_lock:
        stats += 1


def work(number):
    key = number
    while True:
        time.sleep(0.0002)
        key = key * 6364136223846793005 % (1 << 64) + 1
        count()
        look_up(key)
        done[number] += 1


def refresh():
    while True:
        refresh_cache()
        time.sleep(0.001)


for number in range(3):
    threading.Thread(target=work, args=(number,), daemon=True).start()
threading.Thread(target=refresh, daemon=True).start()
# The C library's semaphore that CPython keeps behind the object's header.
address = ctypes.c_void_p.from_address(id(cache_lock) + 16).value
print(f"ready lock={address:#x}+32", flush=True)
for line in sys.stdin:
    print(sum(done), flush=True)
