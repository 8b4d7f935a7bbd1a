// Queued SECONDS [MS]: threads that want a `ReentrantLock`, which one of them holds for long. `keeper` sleeps MS (20) in each of its sections, in `compact`;
// three `writer`s want the lock for moments, in `insert`. Another waits for what a queue has, which is idle.
// Facts: blocked (waits in `insert` that lasted 1 ms or longer, by the program's own clock), wait_ns (their sum).
// Queued latch: a thread waits for a CountDownLatch until stdin says so: no lock. Facts: none.
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.ReentrantLock;

public class Queued {
    static final ReentrantLock table = new ReentrantLock();
    static final ArrayBlockingQueue<Integer> work = new ArrayBlockingQueue<>(1);
    static final AtomicLong blocked = new AtomicLong(), waited = new AtomicLong();
    static volatile boolean over;
    static long kept = 20;
    static long rows;

    static void insert() {
        long from = System.nanoTime();
        table.lock();
        long wait = System.nanoTime() - from;
        try {
            rows++;
        } finally {
            table.unlock();
        }
        if (wait >= 1_000_000) {
            blocked.incrementAndGet();
            waited.addAndGet(wait);
        }
    }

    static void compact() throws InterruptedException {
        table.lock();
        try {
            Thread.sleep(kept);
        } finally {
            table.unlock();
        }
    }

    static void pause() {
        try {
            Thread.sleep(1);
        } catch (InterruptedException e) {
            throw new RuntimeException(e);
        }
    }

    static Thread start(String name, Runnable body) {
        Thread thread = new Thread(body, name);
        thread.setDaemon(true);
        thread.start();
        return thread;
    }

    public static void main(String[] arguments) throws Exception {
        System.out.println("ready");
        System.in.read();
        if (arguments[0].equals("latch")) {
            CountDownLatch latch = new CountDownLatch(1);
            start("patient", () -> {
                try {
                    latch.await();
                } catch (InterruptedException e) {
                    throw new RuntimeException(e);
                }
            });
            Thread.sleep(500);
            latch.countDown();
            Thread.sleep(500);
        } else {
            if (arguments.length > 1)
                kept = Long.parseLong(arguments[1]);
            Thread[] writers = new Thread[3];
            for (int i = 0; i < writers.length; i++) {
                writers[i] = start("writer", () -> {
                    while (!over) {
                        insert();
                        pause();
                    }
                });
            }
            start("consumer", () -> {
                try {
                    while (true)
                        work.take();
                } catch (InterruptedException e) {
                    throw new RuntimeException(e);
                }
            });
            Thread keeper = start("keeper", () -> {
                try {
                    while (!over) {
                        compact();
                        pause();
                    }
                } catch (InterruptedException e) {
                    throw new RuntimeException(e);
                }
            });
            Thread.sleep(Long.parseLong(arguments[0]) * 1_000);
            work.put(1);
            over = true;
            keeper.join();
            for (Thread writer : writers)
                writer.join();
        }
        System.out.println("{\"workload\":\"queued\",\"pid\":" + ProcessHandle.current().pid()
            + ",\"locks\":[],\"threads\":[],\"facts\":{\"blocked\":" + blocked + ",\"wait_ns\":" + waited + "}}");
    }
}
