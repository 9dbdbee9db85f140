// cflags: -O2 -pthread -x c ret_c_frames.c -x none
// ret_throw MODE [wait]: C++ exceptions unwind probed frames. `uncaught` dies of SIGABRT.
#include "ret_common.h"
#include <exception>
#include <future>
#include <signal.h>
#include <stdexcept>
#include <string>
#include <thread>
#include <ucontext.h>

extern "C" int c_frame(int (*callee)(int), int x);
extern "C" void c_sorts(int *numbers, size_t count, int (*compare)(const void *, const void *));
extern "C" void c_tell(void);

CALLS(thrower); CALLS(middle); CALLS(tails); CALLS(catcher); CALLS(outer); CALLS(rethrows); CALLS(nests);
CALLS(counted); CALLS(descends); CALLS(compares); CALLS(stored); CALLS(noisy); CALLS(yields); CALLS(raises); CALLS(throws_handling);
static uint64_t rounds = 1000, built, destroyed, caught, sum;

struct Error : std::runtime_error {
    int code;
    explicit Error(int code) : std::runtime_error("error " + std::to_string(code)), code(code) {}
};

extern "C" {
PROBED int counted(int x) { ENTER(counted); KEEP(); LEAVE(counted); return x + 1; }
}

// A destructor calls this and catches its exception while another exception unwinds.
extern "C" PROBED int noisy(int x) {
    ENTER(noisy);
    if (x % 2) throw x;
    LEAVE(noisy);
    return x;
}
struct Guard {
    std::string memory = std::string(100, 'g');
    Guard() { built++; }
    ~Guard() {
        destroyed++;
        CHECK(counted(7) == 8 && memory.size() == 100);
        try {
            noisy(static_cast<int>(destroyed));
        } catch (int odd) {
            CHECK(odd % 2 == 1);
        }
    }
};

extern "C" {
PROBED int thrower(int x) {
    ENTER(thrower);
    KEEP();
    if (x % 3) throw Error(x);
    LEAVE(thrower);
    return x;
}

// A sibling call: `thrower` returns or throws in this frame's place.
PROBED int tails(int x) {
    ENTER(tails);
    if (x % 3 == 0) LEAVE(tails);
    return thrower(x);
}

PROBED int middle(int x) {
    ENTER(middle);
    Guard guard;
    int result = tails(x) + counted(x);
    LEAVE(middle);
    return result;
}

PROBED int catcher(int x) {
    ENTER(catcher);
    int result = -1;
    try {
        Guard guard;
        result = middle(x);
    } catch (const Error &error) {
        CHECK(error.code == x && error.what() == "error " + std::to_string(x));
        caught++;
        result = -x;
    }
    LEAVE(catcher);
    return result;
}

// The exception must not reach this frame.
PROBED int outer(int x) {
    ENTER(outer);
    Guard guard;
    int result = catcher(x) + catcher(x + 1);
    LEAVE(outer);
    return result;
}

PROBED int rethrows(int x) {
    ENTER(rethrows);
    Guard guard;
    try {
        x = middle(x);
    } catch (...) {
        counted(x);
        throw;
    }
    LEAVE(rethrows);
    return x;
}

PROBED int nests(int x) {
    ENTER(nests);
    try {
        Guard guard;
        x = rethrows(x);
    } catch (const Error &) {
        std::throw_with_nested(std::logic_error("nested"));
    }
    LEAVE(nests);
    return x;
}

PROBED int descends(int depth) {
    ENTER(descends);
    Guard guard;
    int result = depth == 0 ? thrower(1) : descends(depth - 1);
    LEAVE(descends);
    return result + 1;
}

PROBED int compares(const void *a, const void *b) {
    ENTER(compares);
    int left = *static_cast<const int *>(a), right = *static_cast<const int *>(b);
    if (left == 13 || right == 13) throw std::runtime_error("thirteen");
    LEAVE(compares);
    return left - right;
}

PROBED void stored(std::exception_ptr *into, int x) {
    ENTER(stored);
    try {
        middle(x);
    } catch (...) {
        *into = std::current_exception();
    }
    LEAVE(stored);
}
}

template <typename F> static int guarded(F run) {
    try {
        return run();
    } catch (const std::exception &error) {
        caught++;
        sum += std::string(error.what()).size();
        return 0;
    }
}

static void handler_above() {
    for (int i = 0; i < static_cast<int>(rounds); i++) guarded([i] { return middle(i); });
}
static void handler_below() {
    for (int i = 0; i < static_cast<int>(rounds); i++) sum += static_cast<uint64_t>(outer(i) + 100000);
}
static void rethrown() {
    for (int i = 0; i < static_cast<int>(rounds); i++) guarded([i] { return rethrows(i); });
}
static void nested() {
    for (int i = 0; i < static_cast<int>(rounds); i++) {
        try {
            nests(i);
        } catch (const std::logic_error &error) {
            guarded([&error]() -> int { std::rethrow_if_nested(error); return 0; });
        }
    }
}
static void deep() {
    for (int i = 0; i < 20; i++) guarded([i] { return descends(i * 50); });
}
static void through_c() {
    for (int i = 0; i < static_cast<int>(rounds); i++) {
        guarded([i] { return c_frame(middle, i); });
        int numbers[20];
        for (int n = 0; n < 20; n++) numbers[n] = (n * 7 + i) % 25;
        guarded([&numbers] { c_sorts(numbers, 20, compares); return 0; });
    }
}
static void kept() {
    for (int i = 0; i < static_cast<int>(rounds); i++) {
        std::exception_ptr pointer;
        stored(&pointer, i);
        if (pointer) guarded([&pointer]() -> int { std::rethrow_exception(pointer); });
    }
}
static void threads() {
    auto one = [] {
        for (int i = 0; i < 200; i++) {
            try { thrower(i); } catch (const Error &) {}
        }
        return tails(1);
    };
    std::future<int> futures[4];
    for (auto &future : futures) future = std::async(std::launch::async, one);
    for (auto &future : futures) guarded([&future] { return future.get(); });
}

// The coroutines throw and catch on their own stacks while others' probed frames are live.
enum { FIBERS = 4 };
static ucontext_t fibers[FIBERS], scheduler;
static int next_fiber;
extern "C" PROBED void yields(int fiber, int depth) {
    ENTER(yields);
    Guard guard;
    CHECK(swapcontext(&fibers[fiber], &scheduler) == 0);
    if (depth) yields(fiber, depth - 1);
    else if (fiber % 2) middle(1);
    LEAVE(yields);
}
static void fiber_body() {
    int fiber = next_fiber++;
    for (int i = 0; i < 50; i++) guarded([=] { yields(fiber, (i + fiber) % 5); return outer(i); });
    for (;;) swapcontext(&fibers[fiber], &scheduler);
}
static void make_fiber(ucontext_t *fiber) {
    CHECK(getcontext(fiber) == 0);
    fiber->uc_stack.ss_size = 65536;
    fiber->uc_stack.ss_sp = malloc(65536);
    makecontext(fiber, fiber_body, 0);
}
static void in_fibers() {
    for (auto &fiber : fibers) make_fiber(&fiber);
    for (int turn = 0; turn < 50 * 5 + 2; turn++)
        for (int f = 0; f < FIBERS; f++)
            CHECK(swapcontext(&scheduler, &fibers[turn == 0 ? f : (f * 3 + turn) % FIBERS]) == 0);
}

// Throws over the signal frame that the kernel made.
extern "C" PROBED void throws_handling(int signal) {
    ENTER(throws_handling);
    Guard guard;
    if (counted(signal)) throw Error(signal);
    LEAVE(throws_handling);
}
// The header declares that raise never throws, so it is called through a pointer.
static int (*volatile raiser)(int) = raise;
extern "C" PROBED int raises(int x) {
    ENTER(raises);
    Guard guard;
    if (x % 2) raiser(SIGUSR1);
    LEAVE(raises);
    return x;
}
static void signalled() {
    struct sigaction action = {};
    action.sa_handler = throws_handling;
    action.sa_flags = SA_NODEFER;
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    for (int i = 0; i < static_cast<int>(rounds); i++) guarded([i] { return raises(i); });
}

static void tell(uint64_t inside) {
    CHECK(built == destroyed + inside);
    printf("caught %llu destroyed %llu sum %llu\n", (unsigned long long)caught, (unsigned long long)destroyed,
           (unsigned long long)sum);
    TELL_INSIDE(thrower, inside);
    TELL_INSIDE(tails, inside);
    TELL_INSIDE(middle, inside);
    TELL(rethrows); TELL(catcher); TELL(outer); TELL(nests); TELL(counted); TELL(descends); TELL(compares); TELL(stored);
    TELL(noisy); TELL(yields); TELL(raises); TELL(throws_handling);
    c_tell();
}
static void uncaught() {
    std::set_terminate([] { tell(1); abort(); });
    handler_below();
    middle(1);
}
static void everything() {
    handler_above(); handler_below(); rethrown(); nested(); deep(); through_c(); kept();
}

static const struct mode modes[] = {
    {"everything", everything}, {"above", handler_above}, {"below", handler_below}, {"rethrown", rethrown},
    {"nested", nested}, {"deep", deep}, {"through_c", through_c}, {"kept", kept}, {"threads", threads},
    {"fibers", in_fibers}, {"signalled", signalled}, {"uncaught", uncaught},
};

int main(int argc, char **argv) {
    int status = RUN(modes, argc, argv);
    if (status == 0) tell(0);
    return status;
}
