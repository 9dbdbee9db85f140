// cflags: -O1 -g -std=c++20 -pthread
// cxx_waits: waits of C++20 that do not call pthread, 5 times each, over 20 ms. atomic<long>::wait uses libstdc++'s
// proxies.
#include "common.h"
#include <atomic>
#include <barrier>
#include <chrono>
#include <latch>
#include <semaphore>
#include <sys/syscall.h>
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
std::atomic<int> waiter;
static void let_it_sleep() {
    while (waiter == 0) std::this_thread::sleep_for(1ms);
    until_asleep(waiter, SYS_futex, NULL, 0);
    std::this_thread::sleep_for(20ms);
}
int main() {
    const int rounds = 5;
    for (int r = 0; r < rounds; r++) {
        lat = new std::latch(1);
        std::thread t([&] {
            waiter = gettid();
            wait_int(r);
            wait_long(r);
            wait_flag(r & 1);
            wait_sem();
            wait_lat();
            wait_bar();
        });
        let_it_sleep(); at_int++; at_int.notify_all();
        let_it_sleep(); at_long++; at_long.notify_all();
        let_it_sleep(); if (r & 1) flag.clear(); else flag.test_and_set(); flag.notify_all();
        let_it_sleep(); sem.release();
        let_it_sleep(); lat->count_down();
        let_it_sleep(); bar.arrive_and_wait();
        t.join();
        waiter = 0;
    }
}
