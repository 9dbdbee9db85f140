// Mixed: a little of everything that Java programs do, after a line of stdin.
import java.util.*;
class Mixed {
    static int sink(int n) { if (n == 0) throw new IllegalStateException("end"); return sink(n - 1) + n; }
    public static void main(String[] words) throws Exception {
        String line = new Scanner(System.in).nextLine();
        TreeMap<String, Integer> map = new TreeMap<>();
        for (int i = 0; i < 20000; i++) map.merge("k" + i % 997, i, Integer::sum);
        int caught = 0;
        for (int i = 0; i < 50; i++) try { sink(i); } catch (IllegalStateException e) { caught++; }
        int[] sums = new int[4];
        Thread[] threads = new Thread[4];
        for (int t = 0; t < 4; t++) { int n = t; (threads[t] = new Thread(() -> { for (int i = 0; i < 1000; i++) sums[n] += ("" + i * n).length(); })).start(); }
        for (Thread thread : threads) thread.join();
        System.gc();
        try { Object none = words.length > 9 ? "" : null; none.hashCode(); } catch (NullPointerException e) { caught++; }
        System.out.println(line + " " + map.hashCode() + " " + caught + " " + Arrays.toString(sums));
        System.exit(7);
    }
}
