// cflags: -O2 -shared -fPIC -I../../crates/apps/scope/include
// A library that enters its own scopes (named parts of work).
#define TIPTOE_IMPLEMENTATION
#include "tiptoe.h"

#include <unistd.h>

static const tiptoe_scope plugin_scope = TIPTOE_SCOPE("plugin");

void scoped_often(int times) {
    for (int i = 0; i < times; i++) {
        tiptoe_token in = tiptoe_scope_enter(&plugin_scope);
        getppid();
        tiptoe_scope_exit(in);
    }
}
