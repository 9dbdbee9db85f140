// cflags: -O2 -pthread -ldl
// painted LIBRARY [wait]: threads whose name has terminal escapes. One calls `painted`, one waits for a lock.
#include "common.h"
#include <dlfcn.h>
#include <stdatomic.h>
#include <sys/prctl.h>

static atomic_int stopped;
static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;

PROBED int painted(int x) { KEEP(); return x + 1; }

static void *work(void *unused) {
    (void)unused;
    while (!atomic_load(&stopped)) {
        CHECK(painted(1) == 2);
        usleep(1000);
    }
    return NULL;
}

static void *stand(void *unused) {
    (void)unused;
    pthread_mutex_lock(&held);
    pthread_mutex_unlock(&held);
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t threads[2];
    CHECK(argc > 1 && dlopen(argv[1], RTLD_NOW) != NULL);
    // Clears the screen, begins a line, reverses the text direction, and is cut within a character.
    CHECK(prctl(PR_SET_NAME, "\033[2J\nforged\xe2\x80\xae\xff") == 0);
    pthread_mutex_lock(&held);
    CHECK(pthread_create(&threads[0], NULL, work, NULL) == 0);
    CHECK(pthread_create(&threads[1], NULL, stand, NULL) == 0);
    wait_for_start(argc, argv);
    atomic_store(&stopped, 1);
    pthread_mutex_unlock(&held);
    for (int i = 0; i < 2; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    return 0;
}
