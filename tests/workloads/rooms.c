// rooms ROUNDS [processes]: a lock of the program's own for which nobody waits in a futex call. Of four rooms each is kept ROUNDS times until a
// guest waits for it, and once while a guest gives up. Guests are threads, or processes that share the rooms.
#include "truth.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/wait.h>

// How long a room is kept once somebody waits, at least; and how long an impatient guest waits.
#define KEPT_NS 2000000
#define PATIENCE_MS 20

enum sort { HALL, ROOM };

struct room {
    uint8_t sort;
    uint32_t number;
    _Atomic uint32_t owner;
    // Whoever is in it or waits for it; and of these, who waits already.
    _Atomic int state, waiting;
    int event;
    const char *name;
    _Atomic uint64_t waits, wait_min_ns, call_ns;
};

// Through which a room is asked for.
struct key {
    long rank;
    struct room *room;
};

static struct room *rooms;
static long rounds;

// Only who has to wait calls it. Returns whether it has given up.
NAMED static int room_wait(struct key *key, int patience_ms)
{
    struct room *room = key->room;
    struct pollfd event = {.fd = room->event, .events = POLLIN};
    int ready;
    room->waiting = 1;
    while ((ready = poll(&event, 1, patience_ms)) < 0 && errno == EINTR)
        ;
    room->waiting = 0;
    if (ready == 0) {
        room->state--;
        return 1;
    }
    uint64_t one;
    if (read(room->event, &one, sizeof one) != sizeof one)
        die("read", errno);
    return 0;
}

// Only who gives it to one that waits calls it.
NAMED static void room_hand(int why, struct room *room)
{
    uint64_t one = 1;
    if (write(room->event, &one, sizeof one) != sizeof one)
        die("write", why + errno);
}

NAMED static int room_enter(struct key *key, int patience_ms)
{
    struct room *room = key->room;
    if (room->state++ > 0) {
        uint64_t from = now_ns();
        int gave_up = room_wait(key, patience_ms);
        if (gave_up)
            return gave_up;
        room->call_ns += now_ns() - from;
        room->waits++;
    }
    room->owner = (uint32_t)syscall(SYS_gettid);
    return 0;
}

NAMED static void room_leave(struct key *key)
{
    struct room *room = key->room;
    room->owner = 0;
    if (room->state-- > 1)
        room_hand(0, room);
}

NAMED static void *visit(void *which)
{
    struct key key = {.rank = 1, .room = which};
    uint32_t keeper = (uint32_t)getpid();
    // The main thread of the process, or of its parent.
    if (keeper == (uint32_t)syscall(SYS_gettid))
        keeper = (uint32_t)getppid();
    for (long i = 0; i <= rounds; i++) {
        while (key.room->owner != keeper)
            sleep_ns(50000);
        if (room_enter(&key, i < rounds ? -1 : PATIENCE_MS) == 0)
            room_leave(&key);
    }
    return NULL;
}

NAMED static void keep(struct room *room)
{
    struct key key = {.rank = 2, .room = room};
    for (long i = 0; i <= rounds; i++) {
        room_enter(&key, -1);
        while (!room->waiting)
            sleep_ns(50000);
        uint64_t from = now_ns();
        if (i < rounds) {
            sleep_ns(KEPT_NS);
            room->wait_min_ns += now_ns() - from;
        } else {
            while (room->state > 1)
                sleep_ns(50000);
        }
        room_leave(&key);
        while (room->state > 0)
            sleep_ns(50000);
    }
}

int main(int argc, char **argv)
{
    rounds = number(argc, argv, 1, 20);
    int processes = argc > 2;
    enum { COUNT = 4 };
    rooms = mmap(NULL, COUNT * sizeof *rooms, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (rooms == MAP_FAILED)
        die("mmap", errno);
    static const struct room all[COUNT] = {
        {.sort = HALL, .number = 1, .name = "hall"},
        {.sort = HALL, .number = 2, .name = "hall"},
        {.sort = ROOM, .number = 7, .name = "room 7"},
        {.sort = ROOM, .number = 8, .name = "room 8"},
    };
    pthread_t guests[COUNT];
    for (int i = 0; i < COUNT; i++) {
        memcpy((void *)&rooms[i], &all[i], sizeof all[i]);
        rooms[i].event = eventfd(0, EFD_SEMAPHORE);
        if (!processes)
            MUST(pthread_create(&guests[i], NULL, visit, &rooms[i]));
        else if (fork() == 0) {
            visit(&rooms[i]);
            _exit(0);
        }
    }
    ready_and_go();
    for (int i = 0; i < COUNT; i++)
        keep(&rooms[i]);
    for (int i = 0; i < COUNT; i++) {
        if (processes)
            wait(NULL);
        else
            MUST(pthread_join(guests[i], NULL));
        char fact_of[3][32];
        static const char *const facts[] = {"waits", "wait_min_ns", "call_ns"};
        uint64_t values[] = {rooms[i].waits, rooms[i].wait_min_ns, rooms[i].call_ns};
        for (int f = 0; f < 3; f++) {
            snprintf(fact_of[f], sizeof fact_of[f], "%s of %u", facts[f], rooms[i].number);
            fact(strdup(fact_of[f]), values[f]);
        }
    }
    return finish("rooms");
}
