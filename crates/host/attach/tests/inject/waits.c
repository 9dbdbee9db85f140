// Makes one blocking call, and records its result. argv: the control page's file, the call, milliseconds.
// Words of the page: done, result, errno, elapsed milliseconds, ready, handler runs.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile long *control;

static void handler(int signal) { (void)signal; control[5]++; }

static long now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static long wait_for(const char *call, int ms) {
    struct timespec t = {ms / 1000, ms % 1000 * 1000000L};
    struct pollfd in = {0, POLLIN, 0};
    if (!strcmp(call, "epoll")) {
        struct epoll_event event = {EPOLLIN, {0}};
        int epoll = epoll_create1(0);
        epoll_ctl(epoll, EPOLL_CTL_ADD, 0, &event);
        return epoll_wait(epoll, &event, 1, ms);
    }
    if (!strcmp(call, "poll")) return poll(&in, 1, ms);
    if (!strcmp(call, "ppoll")) return ppoll(&in, 1, ms < 0 ? 0 : &t, 0);
    if (!strcmp(call, "select")) {
        fd_set set;
        FD_ZERO(&set);
        FD_SET(0, &set);
        struct timeval v = {ms / 1000, ms % 1000 * 1000};
        return select(1, &set, 0, 0, ms < 0 ? 0 : &v);
    }
    if (!strcmp(call, "nanosleep")) return nanosleep(&t, 0);
    if (!strcmp(call, "futex")) {
        static int word;
        return syscall(SYS_futex, &word, FUTEX_WAIT, 0, &t, 0, 0);
    }
    if (!strcmp(call, "sem_timedwait")) {
        sem_t sem;
        struct timespec until;
        sem_init(&sem, 0, 0);
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += ms / 1000;
        return sem_timedwait(&sem, &until);
    }
    if (!strcmp(call, "recv")) {
        int pair[2];
        char byte;
        struct timeval v = {ms / 1000, ms % 1000 * 1000};
        socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
        setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &v, sizeof v);
        return recv(pair[0], &byte, 1, 0);
    }
    if (!strcmp(call, "pause")) return pause();
    if (!strcmp(call, "sigsuspend")) {
        sigset_t mask;
        sigemptyset(&mask);
        sigaddset(&mask, SIGUSR2);
        return sigsuspend(&mask);
    }
    if (!strcmp(call, "sigtimedwait")) {
        sigset_t set;
        sigemptyset(&set);
        sigaddset(&set, SIGUSR2);
        sigprocmask(SIG_BLOCK, &set, 0);
        return sigtimedwait(&set, 0, ms < 0 ? 0 : &t);
    }
    char byte;
    return read(0, &byte, 1);
}

int main(int argc, char **argv) {
    if (argc < 4) return 2;
    pid_t parent = getppid();
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != parent) return 6;
    int fd = open(argv[1], O_RDWR);
    control = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    struct sigaction action = {.sa_handler = handler};
    sigaction(SIGUSR1, &action, 0);
    if (!strcmp(argv[2], "sigsuspend")) {
        sigset_t set;
        sigemptyset(&set);
        sigaddset(&set, SIGUSR1);
        sigprocmask(SIG_BLOCK, &set, 0);
    }
    long start = now();
    control[4] = getpid();
    errno = 0;
    control[1] = wait_for(argv[2], atoi(argv[3]));
    control[2] = errno;
    control[3] = now() - start;
    control[0] = 1;
    usleep(200000); // so that the injector can see the thread leave
    return 0;
}
