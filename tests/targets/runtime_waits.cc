// cflags: -O2 -std=c++20 -fomit-frame-pointer -pthread
// runtime_waits KIND [wait]: a thread waits in `wait_KIND` by a facility of the C++ library.
#include "common.h"
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <future>
#include <latch>
#include <map>
#include <mutex>
#include <semaphore>
#include <shared_mutex>
#include <string>
#include <thread>

// All of the headers' code is inlined unless APART is defined.
#ifdef APART
#define WAITS extern "C" PROBED
#else
#define WAITS extern "C" PROBED __attribute__((flatten))
#endif

static std::mutex hot_mutex;
static std::shared_mutex hot_shared;
static std::condition_variable hot_condition;
static bool is_released;
static std::counting_semaphore<> hot_semaphore(0);
static std::atomic<int> hot_atomic;
static std::thread *other;
static std::latch *hot_latch;
static std::once_flag *hot_once;
static std::promise<int> *hot_promise;

static void pause_a_little() { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }

WAITS void wait_mutex() { hot_mutex.lock(); hot_mutex.unlock(); }
WAITS void wait_write() { hot_shared.lock(); hot_shared.unlock(); }
WAITS void wait_read() { hot_shared.lock_shared(); hot_shared.unlock_shared(); }
WAITS void wait_condition() {
    std::unique_lock lock(hot_mutex);
    while (!is_released) hot_condition.wait(lock);
    is_released = false;
}
WAITS void wait_semaphore() { hot_semaphore.acquire(); }
WAITS void wait_latch() { hot_latch->wait(); }
WAITS void wait_atomic() { hot_atomic.wait(0); }
// A sibling call would change the wait's caller.
WAITS void wait_join() { other->join(); KEEP(); }
WAITS void wait_once() { std::call_once(*hot_once, [] {}); }
WAITS void wait_future() { hot_promise->get_future().wait(); }

static void holding(auto &lock, void (*wait)()) {
    lock.lock();
    std::thread waiter(wait);
    pause_a_little();
    lock.unlock();
    waiter.join();
}

static void until(void (*wait)(), auto end) {
    std::thread waiter(wait);
    pause_a_little();
    end();
    waiter.join();
}

static void release() {
    std::lock_guard lock(hot_mutex);
    is_released = true;
    hot_condition.notify_one();
}

static std::map<std::string, void (*)()> kinds = {
    {"mutex", [] { holding(hot_mutex, wait_mutex); }},
    {"write", [] { holding(hot_shared, wait_write); }},
    {"read", [] { holding(hot_shared, wait_read); }},
    {"condition", [] { until(wait_condition, release); }},
    {"semaphore", [] { until(wait_semaphore, [] { hot_semaphore.release(); }); }},
    {"latch", [] {
        std::latch fresh(1);
        hot_latch = &fresh;
        until(wait_latch, [] { hot_latch->count_down(); });
    }},
    {"atomic", [] {
        hot_atomic = 0;
        until(wait_atomic, [] { hot_atomic = 1; hot_atomic.notify_all(); });
    }},
    {"join", [] {
        std::thread sleeper(pause_a_little);
        other = &sleeper;
        wait_join();
    }},
    {"once", [] {
        std::once_flag fresh;
        hot_once = &fresh;
        std::thread first([] { std::call_once(*hot_once, [] { pause_a_little(); pause_a_little(); }); });
        pause_a_little();
        wait_once();
        first.join();
    }},
    {"future", [] {
        std::promise<int> fresh;
        hot_promise = &fresh;
        until(wait_future, [] { hot_promise->set_value(1); });
    }},
};

int main(int argc, char **argv) {
    CHECK(argc > 1);
    wait_for_start(argc, argv);
    for (int turn = 0; turn < 10; turn++) kinds.at(argv[1])();
    puts("done");
    return 0;
}
