/* A scope is what a thread does now: a tenant, a class of requests, a phase. While `tiptoe stat`, `probe` or `lock` is
 * attached with `--by scope`, events and waits are charged to the scope in which they happen. Otherwise entering a scope
 * is a load and a branch.
 *
 *     #include "tiptoe.h"
 *
 *     static const tiptoe_scope checkout = TIPTOE_SCOPE("checkout");
 *
 *     tiptoe_token in = tiptoe_scope_enter(&checkout);
 *     ...
 *     tiptoe_scope_exit(in);
 *
 * A thread must leave its own scopes, the last first, because leaving a scope also leaves all scopes entered after it.
 * Signal handlers may use scopes. Each program or shared library must contain tiptoe_port_of_scopes once: compile
 * tiptoe.c with it, or define TIPTOE_IMPLEMENTATION before this header in one file.
 *
 * C11 and C++11, gcc and clang, on Linux. */
#ifndef TIPTOE_H
#define TIPTOE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A scope. It must be static or in memory that is never freed, because its address identifies it. */
typedef struct tiptoe_scope {
    const char *name;
    size_t length;
} tiptoe_scope;

#define TIPTOE_SCOPE(name) {name, sizeof(name) - 1}

/* What tiptoe_scope_enter returns and tiptoe_scope_exit takes; 0 without a tracer. */
typedef uint64_t tiptoe_token;

/* tiptoe's library in the program writes the addresses of its functions here, and must set `open` last. */
struct tiptoe_port {
    uint64_t magic;
    uint32_t kind;
    uint32_t bytes;
    tiptoe_token (*begin)(const tiptoe_scope *scope, uint64_t flags);
    void (*end)(tiptoe_token token, uint64_t flags);
    unsigned char open;
};

extern __attribute__((visibility("hidden"))) struct tiptoe_port tiptoe_port_of_scopes;

#ifdef TIPTOE_IMPLEMENTATION
__attribute__((visibility("hidden"), used, section("tiptoe_port")))
struct tiptoe_port tiptoe_port_of_scopes = {
    0x0001656f74706974ull, 1, sizeof(struct tiptoe_port), NULL, NULL, 0,
};
#endif

/* Returns whether a tracer uses scopes now. */
static inline int tiptoe_is_traced(void) {
    return __atomic_load_n(&tiptoe_port_of_scopes.open, __ATOMIC_ACQUIRE) != 0;
}

/* Enters a scope, inside the thread's current scope. */
static inline tiptoe_token tiptoe_scope_enter(const tiptoe_scope *scope) {
    if (!tiptoe_is_traced()) {
        return 0;
    }
    return __atomic_load_n(&tiptoe_port_of_scopes.begin, __ATOMIC_RELAXED)(scope, 0);
}

/* Leaves the scope whose tiptoe_scope_enter returned this token. */
static inline void tiptoe_scope_exit(tiptoe_token token) {
    if (token != 0) {
        __atomic_load_n(&tiptoe_port_of_scopes.end, __ATOMIC_RELAXED)(token, 0);
    }
}

#ifdef __cplusplus
}

namespace tiptoe {

/* Keeps the thread in a scope until destroyed. */
class scoped {
    tiptoe_token token;

  public:
    explicit scoped(const tiptoe_scope &scope) : token(tiptoe_scope_enter(&scope)) {}
    ~scoped() { tiptoe_scope_exit(token); }
    scoped(const scoped &) = delete;
    scoped &operator=(const scoped &) = delete;
};

} // namespace tiptoe
#endif

#endif
