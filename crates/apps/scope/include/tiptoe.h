/* Labels what a program does, for tiptoe to tell its cost by.
 *
 * A scope is a label on what a thread does now: a tenant, a class of requests, a phase. While `tiptoe stat --by scope`,
 * `tiptoe probe --by scope` or `tiptoe lock --by scope` is attached, times, events, hits and waits are charged to the
 * scope that they happen in; at all other times entering one is a load and a branch.
 *
 *     #include "tiptoe.h"
 *
 *     static const tiptoe_scope checkout = TIPTOE_SCOPE("checkout");
 *
 *     tiptoe_token in = tiptoe_scope_enter(&checkout);
 *     ...
 *     tiptoe_scope_exit(in);
 *
 * Scopes are entered and left on one thread, in opposite order; who leaves one has left those entered since. From
 * handlers of signals, too. One file of each program or shared library has to hold what all others call: compile
 * tiptoe.c with it, or define TIPTOE_IMPLEMENTATION in front of this header in one of its own files.
 *
 * C11 and C++11, gcc and clang, on Linux. */
#ifndef TIPTOE_H
#define TIPTOE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A name, known by the address of this: it has to stay where it is, in a static or in memory that is never freed. */
typedef struct tiptoe_scope {
    const char *name;
    size_t length;
} tiptoe_scope;

#define TIPTOE_SCOPE(name) {name, sizeof(name) - 1}

/* What tiptoe_scope_exit is given; 0 where nobody traces. */
typedef uint64_t tiptoe_token;

/* Where tiptoe's agent is met: it writes the addresses, and opens it behind them. */
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

/* Whether somebody asks for scopes now. */
static inline int tiptoe_is_traced(void) {
    return __atomic_load_n(&tiptoe_port_of_scopes.open, __ATOMIC_ACQUIRE) != 0;
}

/* The calling thread enters a scope, within the one that it is in. */
static inline tiptoe_token tiptoe_scope_enter(const tiptoe_scope *scope) {
    if (!tiptoe_is_traced()) {
        return 0;
    }
    return __atomic_load_n(&tiptoe_port_of_scopes.begin, __ATOMIC_RELAXED)(scope, 0);
}

/* It leaves what it entered with this token. */
static inline void tiptoe_scope_exit(tiptoe_token token) {
    if (token != 0) {
        __atomic_load_n(&tiptoe_port_of_scopes.end, __ATOMIC_RELAXED)(token, 0);
    }
}

#ifdef __cplusplus
}

namespace tiptoe {

/* In a scope, until it is destroyed. */
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
