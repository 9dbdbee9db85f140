// cflags: -O2 -std=c++20 -fomit-frame-pointer -shared -fPIC -pthread
// What is opened by programs that have no C++ of their own: it waits in functions of C++'s library.
#include "common.h"
#include <chrono>
#include <future>
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
