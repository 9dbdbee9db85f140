// cflags: -O2 -pthread
// bytes [wait]: threads whose names the kernel has cut within a UTF-8 character.
#include "common.h"
#include <pthread.h>
#include <sys/prctl.h>

PROBED int called(int x) { KEEP(); return x + 1; }

static void *stay(void *unused) {
    CHECK(prctl(PR_SET_NAME, "caf\xc3") == 0);
    for (;;) pause();
    return unused;
}

int main(int argc, char **argv) {
    pthread_t id;
    CHECK(prctl(PR_SET_NAME, "na\xc3\xaf" "ve \xe2\x82") == 0);
    CHECK(pthread_create(&id, NULL, stay, NULL) == 0);
    wait_for_start(argc, argv);
    for (int i = 0; i < 1000; i++) CHECK(called(i) == i + 1);
    expect("called", 1000);
    return 0;
}
