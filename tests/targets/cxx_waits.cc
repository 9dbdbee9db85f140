// cflags: -O1 -g -std=c++20 -pthread
// cxx_waits: waits of C++20 that are no calls of pthread: atomic<int>::wait, atomic<long>::wait (through a table of proxies of
// libstdc++), atomic_flag, counting_semaphore, latch, barrier. One thread waits for each for about 20 ms, 10 times.
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <latch>
#include <semaphore>
#include <thread>
using namespace std::chrono_literals;
std::atomic<int> at_int{0};
std::atomic<long> at_long{0};
std::atomic_flag flag;
std::counting_semaphore<10> sem{0};
std::latch *lat;
std::barrier<> bar{2};
#define NI __attribute__((noinline))
NI void wait_int(int v) { at_int.wait(v); asm volatile("" ::: "memory"); }
NI void wait_long(long v) { at_long.wait(v); asm volatile("" ::: "memory"); }
NI void wait_flag(bool v) { flag.wait(v); asm volatile("" ::: "memory"); }
NI void wait_sem() { sem.acquire(); asm volatile("" ::: "memory"); }
NI void wait_lat() { lat->wait(); asm volatile("" ::: "memory"); }
NI void wait_bar() { bar.arrive_and_wait(); asm volatile("" ::: "memory"); }
int main() {
    const int rounds = 10;
    double waited[6] = {};
    for (int r = 0; r < rounds; r++) {
        lat = new std::latch(1);
        std::thread t([&] {
            auto at = [&](int i, auto f) { auto b = std::chrono::steady_clock::now(); f(); waited[i] += std::chrono::duration<double>(std::chrono::steady_clock::now() - b).count(); };
            at(0, [&] { wait_int(r); });
            at(1, [&] { wait_long(r); });
            at(2, [&] { wait_flag(r & 1); });
            at(3, [&] { wait_sem(); });
            at(4, [&] { wait_lat(); });
            at(5, [&] { wait_bar(); });
        });
        std::this_thread::sleep_for(20ms); at_int++; at_int.notify_all();
        std::this_thread::sleep_for(20ms); at_long++; at_long.notify_all();
        std::this_thread::sleep_for(20ms); if (r & 1) flag.clear(); else flag.test_and_set(); flag.notify_all();
        std::this_thread::sleep_for(20ms); sem.release();
        std::this_thread::sleep_for(20ms); lat->count_down();
        std::this_thread::sleep_for(20ms); bar.arrive_and_wait();
        t.join();
    }
    const char *n[] = {"at_int", "at_long", "flag", "sem", "lat", "bar"};
    for (int i = 0; i < 6; i++) printf("%s %.0f ms\n", n[i], waited[i] * 1000);
}
