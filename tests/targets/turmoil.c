// cflags: -O2 -pthread -ldl
// turmoil PLUGIN: threads, locks, signals, children and a library, all at once, until stdin closes.
#include "common.h"
#include <dlfcn.h>
#include <semaphore.h>
#include <sys/wait.h>
#include <time.h>

static volatile int over;
static const char *plugin;
static uint64_t worked, handled;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

PROBED int work(int x) { KEEP(); return x + 1; }

static void work_once(void) {
    CHECK(pthread_mutex_lock(&lock) == 0);
    CHECK(work(41) == 42);
    worked++;
    CHECK(pthread_mutex_unlock(&lock) == 0);
}

static void on_signal(int signal) {
    CHECK(signal == SIGUSR1 && work(1) == 2);
    __atomic_fetch_add(&handled, 1, __ATOMIC_RELAXED);
}

static void *live(void *at) { work_once(); return at; }
static void births(void) {
    pthread_t id;
    void *result;
    CHECK(pthread_create(&id, NULL, live, &worked) == 0 && pthread_join(id, &result) == 0 && result == &worked);
}

static void wait_on(void *inside) { for (;;) { CHECK(sem_post(inside) == 0); pause(); } }
static void leave(void *cleaned) { *(int *)cleaned = 1; }
static void *wait_for_cancel(void *inside) {
    static _Thread_local int cleaned;
    pthread_cleanup_push(leave, &cleaned);
    wait_on(inside);
    pthread_cleanup_pop(1);
    return NULL;
}
static void cancels(void) {
    pthread_t id;
    sem_t inside;
    void *result;
    CHECK(sem_init(&inside, 0, 0) == 0);
    CHECK(pthread_create(&id, NULL, wait_for_cancel, &inside) == 0);
    while (sem_wait(&inside) != 0) CHECK(errno == EINTR);
    CHECK(pthread_cancel(id) == 0 && pthread_join(id, &result) == 0 && result == PTHREAD_CANCELED);
    work_once();
}

static void signals(void) {
    CHECK(raise(SIGUSR1) == 0 && kill(getpid(), SIGUSR1) == 0);
    work_once();
}

static void forks(void) {
    int status;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) _exit(work(6));
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
    work_once();
}

static void loads(void) {
    void *handle = dlopen(plugin, RTLD_NOW);
    CHECK(handle != NULL);
    int (*plugin_work)(int) = (int (*)(int))dlsym(handle, "plugin_work");
    CHECK(plugin_work != NULL && plugin_work(5) == 15 && dlclose(handle) == 0);
    work_once();
}

enum { WAYS = 5 };
static void (*const ways[WAYS])(void) = {births, cancels, signals, forks, loads};

static void *run(void *at) {
    uint64_t way = (uint64_t)at;
    struct timespec pause = {0, 1000000};
    while (!over) {
        ways[way]();
        nanosleep(&pause, NULL);
    }
    return NULL;
}

int main(int argc, char **argv) {
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    pthread_t ids[WAYS];
    ssize_t got;
    char line[64];
    CHECK(argc > 1 && sigaction(SIGUSR1, &action, NULL) == 0);
    plugin = argv[1];
    puts("ready");
    fflush(stdout);
    for (uint64_t way = 0; way < WAYS; way++) CHECK(pthread_create(&ids[way], NULL, run, (void *)way) == 0);
    while ((got = read(0, line, sizeof line)) != 0) CHECK(got > 0 || errno == EINTR);
    over = 1;
    for (int way = 0; way < WAYS; way++) CHECK(pthread_join(ids[way], NULL) == 0);
    CHECK(handled > 0);
    expect("worked", worked);
    return 0;
}
