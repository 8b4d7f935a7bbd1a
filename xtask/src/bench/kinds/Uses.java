// Uses a Java monitor while another thread sleeps. Speaks as pairs.c does.
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.util.Scanner;

public class Uses {
    private static final int BATCH = 100;
    private static final Object MONITOR = new Object();
    private static long counter;

    private static void use() {
        for (int i = 0; i < BATCH; i++) {
            synchronized (MONITOR) {
                counter++;
            }
        }
    }

    public static void main(String[] arguments) {
        Thread sleeper = new Thread(() -> {
            try {
                Thread.sleep(Long.MAX_VALUE);
            } catch (InterruptedException e) {
                // It has slept long enough.
            }
        });
        sleeper.setDaemon(true);
        sleeper.start();
        ThreadMXBean threads = ManagementFactory.getThreadMXBean();
        Scanner in = new Scanner(System.in);
        while (in.hasNext()) {
            String what = in.next();
            if (!what.equals("java_monitor"))
                throw new IllegalArgumentException(what);
            long end = in.nextLong() * 1_000_000, made = 0, now;
            long cpu = threads.getCurrentThreadCpuTime(), begin = System.nanoTime();
            do {
                use();
                made += BATCH;
                now = System.nanoTime();
            } while (now - begin < end);
            System.out.println(made + " " + (now - begin) + " " + (threads.getCurrentThreadCpuTime() - cpu));
        }
    }
}
