#pragma once
#include "common.h"

// `left` calls ended without a return, `inside` calls never end.
static inline void truth(const char *name, uint64_t entries, uint64_t left, uint64_t inside) {
    expect(name, entries);
    printf("returns %s %llu\n", name, (unsigned long long)(entries - left - inside));
    printf("left %s %llu\n", name, (unsigned long long)left);
    printf("inside %s %llu\n", name, (unsigned long long)inside);
    fflush(stdout);
}

static inline void unfinished(const char *name, uint64_t entries, uint64_t returned) {
    expect(name, entries);
    printf("returns %s %llu\n", name, (unsigned long long)returned);
    printf("unfinished %s %llu\n", name, (unsigned long long)(entries - returned));
    fflush(stdout);
}

// ENTER must be a function's first statement, LEAVE its last before its return.
struct calls { const char *name; uint64_t entered, returned; };
#define CALLS(function) static struct calls function##_calls = {#function, 0, 0}
#define ENTER(function) __atomic_fetch_add(&function##_calls.entered, 1, __ATOMIC_RELAXED)
#define LEAVE(function) __atomic_fetch_add(&function##_calls.returned, 1, __ATOMIC_RELAXED)
#define TELL_INSIDE(function, inside)                                                           \
    truth(function##_calls.name, function##_calls.entered,                                      \
          function##_calls.entered - function##_calls.returned - (inside), inside)
#define TELL(function) TELL_INSIDE(function, 0)
// The program cannot know whether these calls were left or are running.
#define TELL_UNFINISHED(function)                                                               \
    unfinished(function##_calls.name, function##_calls.entered, function##_calls.returned)

struct mode { const char *name; void (*run)(void); };

// Runs the mode named by the first argument, by default the first mode.
static inline int run_mode(const struct mode *modes, size_t count, int argc, char **argv) {
    const char *asked = argc > 1 && strcmp(argv[1], "wait") ? argv[1] : modes[0].name;
    wait_for_start(argc, argv);
    for (size_t m = 0; m < count; m++) {
        if (strcmp(modes[m].name, asked)) continue;
        modes[m].run();
        return 0;
    }
    return 97;
}
#define RUN(modes, argc, argv) run_mode(modes, sizeof modes / sizeof modes[0], argc, argv)
