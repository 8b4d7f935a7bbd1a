// Monitors ROUNDS: a monitor that one thread holds ROUNDS times until another is blocked by it, and for 2 ms more. It wakes a third one, which waits for
// no lock, before that and as soon as it has given the monitor back.
// Facts: blocked (as the machine itself counts, by ThreadMXBean), wait_ns (at least).
// Monitors load THREADS: threads that take a contended monitor until stdin says "q"; any other line is answered with the
// number of times so far. Facts: taken, counted (by the threads, and under the monitor: the same).
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;

public class Monitors {
    static final class Account {
        long count;

        synchronized long add() {
            long sum = count;
            for (int i = 0; i < 200; i++)
                sum += i ^ sum;
            count++;
            return sum;
        }
    }

    static final Account account = new Account();
    static volatile boolean over;
    static volatile long turn;

    static void tell(String facts) {
        System.out.println("{\"workload\":\"monitors\",\"pid\":" + ProcessHandle.current().pid()
            + ",\"locks\":[],\"threads\":[],\"facts\":{" + facts + "}}");
    }

    static void ring(Thread thread) {
        LockSupport.unpark(thread);
    }

    static void waits(long rounds) throws Exception {
        Thread victim = new Thread(() -> {
            for (long i = 1; i <= rounds; i++) {
                while (turn < i)
                    Thread.onSpinWait();
                account.add();
                turn = -i;
            }
            while (!over)
                Thread.onSpinWait();
        }, "victim");
        victim.start();
        Thread idle = new Thread(() -> {
            while (!over)
                LockSupport.park();
        }, "idle");
        idle.start();
        long waited = 0;
        for (long i = 1; i <= rounds; i++) {
            synchronized (account) {
                turn = i;
                while (victim.getState() != Thread.State.BLOCKED)
                    Thread.sleep(0, 100_000);
                long from = System.nanoTime();
                ring(idle);
                Thread.sleep(2);
                waited += System.nanoTime() - from;
            }
            ring(idle);
            while (turn != -i)
                Thread.onSpinWait();
        }
        long blocked = ManagementFactory.getThreadMXBean().getThreadInfo(victim.getId()).getBlockedCount();
        over = true;
        victim.join();
        ring(idle);
        idle.join();
        tell("\"blocked\":" + blocked + ",\"wait_ns\":" + waited);
    }

    static void load(int threads, BufferedReader in) throws Exception {
        AtomicLong taken = new AtomicLong();
        Thread[] all = new Thread[threads];
        for (int i = 0; i < threads; i++) {
            all[i] = new Thread(() -> {
                while (!over) {
                    account.add();
                    taken.incrementAndGet();
                }
            });
            all[i].start();
        }
        for (String line = in.readLine(); line != null && !line.equals("q"); line = in.readLine())
            System.out.println("taken " + taken.get());
        over = true;
        for (Thread thread : all)
            thread.join();
        tell("\"taken\":" + taken.get() + ",\"counted\":" + account.count);
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        // Loads what it takes before it is observed.
        ManagementFactory.getThreadMXBean();
        System.out.println("ready");
        in.read();
        if (arguments[0].equals("load"))
            load(Integer.parseInt(arguments[1]), in);
        else
            waits(Long.parseLong(arguments[0]));
    }
}
