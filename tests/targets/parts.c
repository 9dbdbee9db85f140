// cflags: -O2 -pthread
// parts [wait]: four threads with two names call `works`, and end their first call by longjmp.
#include "ret_common.h"
#include <pthread.h>
#include <setjmp.h>

static __thread jmp_buf place;

PROBED int works(int how) {
    KEEP();
    if (how == 1) longjmp(place, 1);
    if (how == 2) usleep(20000);
    return how;
}

static void *runs(void *which) {
    int number = (int)(intptr_t)which;
    CHECK(pthread_setname_np(pthread_self(), number < 2 ? "short" : "long") == 0);
    if (setjmp(place) == 0) works(1);
    for (int i = 1; i < 100 * (number + 1); i++) CHECK(works(number == 3 && i == 7 ? 2 : 0) >= 0);
    return NULL;
}

int main(int argc, char **argv) {
    wait_for_start(argc, argv);
    pthread_t ids[4];
    for (intptr_t i = 0; i < 4; i++) {
        CHECK(pthread_create(&ids[i], NULL, runs, (void *)i) == 0);
        CHECK(pthread_join(ids[i], NULL) == 0);
    }
    expect("works", 1000);
    return 0;
}
