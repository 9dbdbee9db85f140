// cflags: -O2 -std=c++20 -fomit-frame-pointer -shared -fPIC -pthread
// A library that waits in functions of libstdc++, for programs without C++ code.
#include "common.h"
#include <chrono>
#include <future>
#include <sys/syscall.h>
#include <thread>

extern "C" PROBED __attribute__((flatten)) void wait_in_plugin(std::promise<void> &promise) {
    promise.get_future().wait();
    KEEP();
}

extern "C" PROBED void wait_often(int turns) {
    for (int turn = 0; turn < turns; turn++) {
        std::promise<void> promise;
        std::thread setter([&] {
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
            promise.set_value();
        });
        wait_in_plugin(promise);
        setter.join();
    }
}

// Prints `waits` when the wait has begun, and ends it at a line of stdin.
extern "C" PROBED void wait_for_line(void) {
    std::promise<void> promise;
    std::thread setter([&] {
        char line[64];
        until_asleep(getpid(), SYS_futex, NULL, 0);
        puts("waits");
        fflush(stdout);
        CHECK(read(0, line, sizeof line) >= 0);
        promise.set_value();
    });
    wait_in_plugin(promise);
    setter.join();
}
