// cflags: -O1
// refaults SIGNAL[,blocked][,nodefer][,other]: faults by SIGILL or SIGTRAP, and again in the handler. If the signal is
// blocked, the kernel must kill the program. With `other`, another thread faults first.
#include "common.h"

static int signal_of_fault;
static volatile int calls;
static sigset_t set;

PROBED void fault(void) {
    KEEP();
    if (signal_of_fault == SIGILL) __asm__ volatile("ud2");
    else __asm__ volatile("int3");
}

static void handler(int signal) {
    (void)signal;
    if (++calls == 20) {
        CHECK(write(1, "twenty\n", 7) == 7);
        _exit(9);
    }
    if (calls == 1) CHECK(write(1, "called\n", 7) == 7);
    fault();
}

static void *run(void *how) {
    if (strstr(how, "blocked")) CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
    fault();
    return NULL;
}

int main(int argc, char **argv) {
    char *how = argc > 1 ? argv[1] : "";
    signal_of_fault = strstr(how, "ill") ? SIGILL : SIGTRAP;
    sigemptyset(&set);
    sigaddset(&set, signal_of_fault);
    struct sigaction action = {.sa_handler = handler, .sa_flags = strstr(how, "nodefer") ? SA_NODEFER : 0};
    CHECK(sigaction(signal_of_fault, &action, NULL) == 0);
    if (strstr(how, "other")) {
        pthread_t id;
        CHECK(pthread_create(&id, NULL, run, how) == 0 && pthread_join(id, NULL) == 0);
    }
    run(how);
    return 0;
}
