// Births: threads that each start and join threads, and processes now and then, until stdin is closed.
import java.util.concurrent.atomic.AtomicLong;

class Births {
    static volatile boolean over;
    static final AtomicLong made = new AtomicLong();

    static void create() {
        try {
            for (int turn = 0; !over; turn++) {
                Thread born = new Thread(made::incrementAndGet);
                born.start();
                born.join();
                if (turn % 100 != 0) continue;
                int status = new ProcessBuilder("true").start().waitFor();
                if (status != 0) throw new IllegalStateException("true ended with " + status);
            }
        } catch (Exception wrong) {
            wrong.printStackTrace();
            System.exit(99);
        }
    }

    public static void main(String[] arguments) throws Exception {
        Thread[] creators = new Thread[2];
        for (int at = 0; at < creators.length; at++) (creators[at] = new Thread(Births::create)).start();
        System.out.println("ready");
        while (System.in.read() >= 0) {}
        over = true;
        for (Thread creator : creators) creator.join();
        System.out.println("expect made " + made.get());
    }
}
