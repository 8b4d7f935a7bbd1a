// Virtual KIND SECONDS: as Queued, but the threads are virtual ones (JDK 21 on), and there are 16 writers. KIND: `lock` for a ReentrantLock, `monitor` for a
// monitor, for which a virtual thread blocks the thread that carries it up to JDK 23.
// Facts: blocked (waits in `insert` that lasted 1 ms or longer, by the program's own clock), wait_ns (their sum).
import java.lang.reflect.Method;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.ReentrantLock;

public class Virtual {
    static final ReentrantLock table = new ReentrantLock();
    static final Object ledger = new Object();
    static final AtomicLong blocked = new AtomicLong(), waited = new AtomicLong();
    static volatile boolean over;
    static boolean byMonitor;
    static long rows;

    static void wrote(long from) {
        long wait = System.nanoTime() - from;
        rows++;
        if (wait >= 1_000_000) {
            blocked.incrementAndGet();
            waited.addAndGet(wait);
        }
    }

    static void insert() {
        long from = System.nanoTime();
        if (byMonitor) {
            synchronized (ledger) {
                wrote(from);
            }
            return;
        }
        table.lock();
        try {
            wrote(from);
        } finally {
            table.unlock();
        }
    }

    static void compact() {
        if (byMonitor) {
            synchronized (ledger) {
                pause(20);
            }
            return;
        }
        table.lock();
        try {
            pause(20);
        } finally {
            table.unlock();
        }
    }

    static void pause(int ms) {
        try {
            Thread.sleep(ms);
        } catch (InterruptedException e) {
            throw new RuntimeException(e);
        }
    }

    // The compiler that the tests have does not know of virtual threads.
    static Thread start(Runnable body) throws Exception {
        Method start = Thread.class.getMethod("startVirtualThread", Runnable.class);
        return (Thread) start.invoke(null, body);
    }

    public static void main(String[] arguments) throws Exception {
        byMonitor = arguments[0].equals("monitor");
        System.out.println("ready");
        System.in.read();
        Thread[] threads = new Thread[17];
        for (int i = 0; i < threads.length; i++) {
            boolean keeps = i == 0;
            threads[i] = start(() -> {
                while (!over) {
                    if (keeps)
                        compact();
                    else
                        insert();
                    pause(1);
                }
            });
        }
        Thread.sleep(Long.parseLong(arguments[1]) * 1_000);
        over = true;
        for (Thread thread : threads)
            thread.join();
        System.out.println("{\"workload\":\"virtual\",\"pid\":" + ProcessHandle.current().pid()
            + ",\"locks\":[],\"threads\":[],\"facts\":{\"blocked\":" + blocked + ",\"wait_ns\":" + waited + "}}");
    }
}
