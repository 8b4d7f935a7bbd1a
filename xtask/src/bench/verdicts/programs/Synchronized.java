// A ledger whose monitor is held while an audit sleeps.
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.concurrent.atomic.AtomicLong;

public class Synchronized {
    static boolean cured;

    static final class Ledger {
        long sum;

        synchronized void book(long amount) {
            sum += amount;
        }

        void audit() throws InterruptedException {
            synchronized (this) { // culprit
                sum = 0;
                if (!cured)
                    Thread.sleep(5);
            } // culprit
            if (cured)
                Thread.sleep(5);
        }
    }

    static final class Statistics {
        long count;

        synchronized void note() {
            count++;
        }
    }

    static final Ledger ledger = new Ledger();
    static final Statistics statistics = new Statistics();
    static volatile long sink;

    static void work(long key, AtomicLong done) {
        long x = key;
        for (int i = 0; i < 10000; i++)
            x = x * 6364136223846793005L + 1;
        sink = x;
        statistics.note();
        ledger.book(x & 7);
        done.incrementAndGet();
    }

    public static void main(String[] arguments) throws Exception {
        cured = arguments.length > 0 && arguments[0].equals("cured");
        AtomicLong[] done = new AtomicLong[3];
        for (int i = 0; i < done.length; i++) {
            AtomicLong own = done[i] = new AtomicLong();
            Thread thread = new Thread(() -> {
                for (long key = 0;; key++)
                    work(key, own);
            }, "worker" + i);
            thread.setDaemon(true);
            thread.start();
        }
        Thread auditor = new Thread(() -> {
            try {
                for (;;) {
                    ledger.audit();
                    Thread.sleep(1);
                }
            } catch (InterruptedException end) {
            }
        }, "auditor");
        auditor.setDaemon(true);
        auditor.start();
        System.out.println("ready");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        while (in.readLine() != null) {
            long sum = 0;
            for (AtomicLong one : done)
                sum += one.get();
            System.out.println(sum);
        }
    }
}
