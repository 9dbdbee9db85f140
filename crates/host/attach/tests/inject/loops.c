// Two threads that make one kind of library call in a loop and check its results. argv: the control page's file, the
// kind. Words of the page: stop, rounds, errors, ready, and a word that depends on the kind. The last word starts the
// exec ("becomes"), ends the first thread ("leaves"), or is the id of the thread that calls exec ("keeps").
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

static volatile long *control;
static const char *kind;
static FILE *null;

static int loop_malloc(unsigned *seed) {
    size_t size = 16 + rand_r(seed) % 70000;
    unsigned char *p = malloc(size);
    if (!p) return 1;
    p[0] = (unsigned char)size;
    p[size - 1] = 7;
    p = realloc(p, size + 100);
    int bad = !p || p[0] != (unsigned char)size || p[size - 1] != 7;
    free(p);
    return bad;
}

static int loop_dlopen(void) {
    void *m = dlopen("libm.so.6", RTLD_NOW);
    if (!m) return 1;
    double (*f)(double) = (double (*)(double))dlsym(m, "cos");
    int bad = !f || f(0.0) != 1.0;
    return dlclose(m) || bad;
}

static int loop_printf(void) {
    char text[64];
    fprintf(null, "%d %s %.3f\n", 42, "tiptoe", 1.5);
    int n = snprintf(text, sizeof text, "%d %s %.3f", 42, "tiptoe", 1.5);
    return n != 15 || strcmp(text, "42 tiptoe 1.500");
}

static int loop_spin(void) {
    static __thread unsigned long x = 1;
    for (int i = 0; i < 1000; i++) x = x * 6364136223846793005UL + 1;
    return x == 0;
}

static void *run(void *arg) {
    unsigned seed = (unsigned)(long)arg;
    while (!control[0]) {
        int bad = !strcmp(kind, "malloc")   ? loop_malloc(&seed)
                  : !strcmp(kind, "dlopen") ? loop_dlopen()
                  : !strcmp(kind, "printf") ? loop_printf()
                                            : loop_spin();
        if (bad) __atomic_add_fetch(&control[2], 1, __ATOMIC_SEQ_CST);
        __atomic_add_fetch(&control[1], 1, __ATOMIC_SEQ_CST);
    }
    return 0;
}

static int becomes_at_a_byte(void *argv) {
    char byte;
    if (read(0, &byte, 1) != 1) return 6;
    char *spin[] = {((char **)argv)[0], ((char **)argv)[1], "spin", 0};
    execv("/proc/self/exe", spin);
    return 5;
}

// The first thread waits in vfork, whose child keeps this memory in use when the other thread calls exec. tiptoe may
// use neither thread, because the first is inside vfork, and libc did not make the other.
static int keep(char **argv) {
    static char stack[1 << 16] __attribute__((aligned(16)));
    int flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM;
    pid_t program = getpid();
    control[4] = clone(becomes_at_a_byte, stack + sizeof stack, flags, argv);
    if (vfork() == 0) {
        control[3] = program;
        while (!control[0] && getppid() == program) usleep(1000);
        _exit(0);
    }
    return 7;
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    pid_t parent = getppid();
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != parent) return 6;
    int fd = open(argv[1], O_RDWR);
    control = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    kind = argv[2];
    null = fopen("/dev/null", "w");
    if (!strcmp(kind, "keeps")) return keep(argv);
    pthread_t thread;
    if (pthread_create(&thread, 0, run, (void *)1)) return 3;
    control[3] = getpid();
    if (!strcmp(kind, "orphan")) pthread_exit(0);
    if (!strcmp(kind, "becomes")) {
        while (!control[4]) usleep(1000);
        execl("/proc/self/exe", argv[0], argv[1], "spin", (char *)0);
        return 5;
    }
    if (!strcmp(kind, "leaves")) {
        // This thread makes calls with a time-out, so that tiptoe uses the other thread for the injection.
        struct timeval time_out = {0, 50000};
        int pair[2];
        char byte;
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) return 4;
        setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &time_out, sizeof time_out);
        while (!control[4]) recv(pair[0], &byte, 1, 0);
        pthread_exit(0);
    }
    run((void *)2);
    pthread_join(thread, 0);
    return control[2] != 0;
}
