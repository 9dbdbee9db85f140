// cflags: -O2 -std=c++20 -fomit-frame-pointer -shared -fPIC -pthread
// What is opened by programs that have no C++ of their own: it waits in functions of C++'s library.
#include "common.h"
#include <chrono>
#include <future>
#include <sys/syscall.h>
#include <thread>

extern "C" PROBED __attribute__((flatten)) void wait_in_plugin(std::promise<void> &promise) {
    promise.get_future().wait();
    KEEP();
}

// So often, each 20 ms long.
extern "C" PROBED void wait_often(int turns) {
    for (int turn = 0; turn < turns; turn++) {
        std::promise<void> promise;
        std::thread teller([&] {
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
            promise.set_value();
        });
        wait_in_plugin(promise);
        teller.join();
    }
}

// One that lasts until a line of stdin comes. Says `waits` when it has begun.
extern "C" PROBED void wait_until_told(void) {
    std::promise<void> promise;
    std::thread teller([&] {
        char line[64];
        until_asleep(getpid(), SYS_futex, NULL, 0);
        puts("waits");
        fflush(stdout);
        CHECK(read(0, line, sizeof line) >= 0);
        promise.set_value();
    });
    wait_in_plugin(promise);
    teller.join();
}
