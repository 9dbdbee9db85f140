// cflags: -O2 -shared -fPIC
// `loads` loads and unloads this library, which reports each call to the program.
#include "common.h"
#ifndef LOADED
#define LOADED(name) loaded_##name
#define NAME(name) "loaded_" name
#endif

extern void report_call(const char *name);

PROBED int LOADED(helper)(int x) {
    report_call(NAME("helper"));
    return x + 1;
}

static PROBED __attribute__((constructor)) void LOADED(constructor)(void) {
    report_call(NAME("constructor"));
    for (int i = 0; i < 3; i++) CHECK(LOADED(helper)(i) == i + 1);
}

static PROBED __attribute__((destructor)) void LOADED(destructor)(void) {
    report_call(NAME("destructor"));
    CHECK(LOADED(helper)(7) == 8);
}

PROBED int LOADED(work)(int x) {
    report_call(NAME("work"));
    return LOADED(helper)(x) + LOADED(helper)(x);
}
