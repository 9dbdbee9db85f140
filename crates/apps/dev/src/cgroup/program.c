// Tasks in cgroups that wake each other on one CPU. Each line of stdin is a question; each answer is the number after
// `;`.
//   cpu N                    later tasks run on this CPU; 1
//   ring DIR TASKS CGROUPS   starts processes that hand a byte round, the n-th in DIR/c(n % CGROUPS); 1
//   hops COUNT               hands the byte on COUNT times; ns each time
//   stop                     ends these processes; 1
//   serve DIR WORKERS MS     clients ask workers of different kinds in DIR/c0 …; the geometric mean response in ns
//   births DIR KIND COUNT    a task in DIR/c0 makes processes (KIND p) or threads (t); the mean ns to make one
//   ends                     the mean ns from a task's last instruction until its parent has waited for it
#define _GNU_SOURCE
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MOST 1024
static pid_t tasks[2 * MOST];
static int count, pipes[MOST][2], answers[2];

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static double now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1e9 + now.tv_nsec;
}

static pid_t begin(const char *dir, int cgroup) {
    pid_t pid = fork();
    if (pid < 0) fail("fork");
    if (pid) {
        tasks[count++] = pid;
        return pid;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (cgroup >= 0) {
        char path[4096];
        snprintf(path, sizeof path, "%s/c%d/cgroup.procs", dir, cgroup);
        int file = open(path, O_WRONLY);
        if (file < 0 || write(file, "0", 1) != 1) fail(path);
        close(file);
    }
    return 0;
}

static void stop(void) {
    for (int i = 0; i < count; i++) kill(tasks[i], SIGKILL);
    for (int i = 0; i < count; i++) waitpid(tasks[i], NULL, 0);
    count = 0;
}

static void pass(int at, int all) {
    long left = 0;
    double start = 0;
    char byte;
    for (;;) {
        if (read(pipes[at][0], &byte, 1) != 1) _exit(0);
        if (at == 0) {
            if (left == 0) {
                if (start) {
                    double took = now_ns() - start;
                    if (write(answers[1], &took, sizeof took) < 0) _exit(0);
                }
                if (read(answers[0], &left, sizeof left) < 0) _exit(0);
                start = now_ns();
            }
            left--;
        }
        if (write(pipes[(at + 1) % all][1], "x", 1) != 1) _exit(0);
    }
}

static int questions[2], results[2];

static double ring(const char *dir, int all, int cgroups) {
    if (all > MOST) return 0;
    if (pipe(questions) || pipe(results)) fail("pipe");
    for (int i = 0; i < all; i++)
        if (pipe(pipes[i])) fail("pipe");
    for (int i = 0; i < all; i++)
        if (!begin(dir, i % cgroups)) {
            answers[0] = questions[0];
            answers[1] = results[1];
            pass(i, all);
        }
    if (write(pipes[0][1], "x", 1) != 1) fail("write");
    for (int i = 0; i < all; i++) close(pipes[i][0]), close(pipes[i][1]);
    usleep(20000);
    return 1;
}

static double hops(long wanted, int all) {
    long rounds = wanted / all + 1;
    double took;
    if (write(questions[1], &rounds, sizeof rounds) < 0 || read(results[0], &took, sizeof took) < 0) fail("ask");
    return took / (double)(rounds * all);
}

static void spin(double ns) {
    for (double end = now_ns() + ns; now_ns() < end;) {}
}

// The kinds of work: short, longer, long, with page faults, after a sleep, and partly in a second process.
enum kind { LITTLE, MORE, MUCH, FAULTS, SLEEPS, HANDS_ON, KINDS };

static void work(enum kind kind, int other) {
    static const struct timespec nap = {0, 50000};
    enum { LENGTH = 8 * 4096 };
    char byte = 'x', *pages;
    switch (kind) {
    case MORE: spin(20000); break;
    case MUCH: spin(100000); break;
    case FAULTS:
        pages = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (pages == MAP_FAILED) _exit(1);
        for (int at = 0; at < LENGTH; at += 4096) pages[at] = 1;
        munmap(pages, LENGTH);
        spin(10000);
        break;
    case SLEEPS:
        nanosleep(&nap, NULL);
        spin(10000);
        break;
    case HANDS_ON:
        spin(10000);
        if (write(other, &byte, 1) != 1 || read(other, &byte, 1) != 1) _exit(0);
        break;
    default: spin(5000);
    }
}

// The second process of a worker is in the worker's cgroup.
static void answer(enum kind kind, int requests) {
    int ends[2] = {-1, -1};
    char byte;
    if (kind == HANDS_ON) {
        if (socketpair(AF_UNIX, SOCK_DGRAM, 0, ends)) fail("socketpair");
        pid_t pid = fork();
        if (pid < 0) fail("fork");
        if (!pid) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            answer(LITTLE, ends[1]);
        }
    }
    for (;;) {
        if (read(requests, &byte, 1) != 1) _exit(0);
        work(kind, ends[0]);
        if (write(requests, &byte, 1) != 1) _exit(0);
    }
}

struct seen {
    double sum_ns, count;
};

static double serve(const char *dir, int workers, int ms) {
    struct seen *seen = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    double logs = 0, end = now_ns() + 20e6 + ms * 1e6, start = now_ns() + 20e6;
    memset(seen, 0, 4096);
    for (int i = 0; i < workers; i++) {
        int ends[2];
        char byte;
        if (socketpair(AF_UNIX, SOCK_DGRAM, 0, ends)) fail("socketpair");
        if (!begin(dir, i)) answer((enum kind)(i % KINDS), ends[1]);
        if (!begin(dir, -1))
            for (double asked; (asked = now_ns()) < end;) {
                if (write(ends[0], "x", 1) != 1 || read(ends[0], &byte, 1) != 1) _exit(0);
                if (asked < start) continue;
                seen[i].sum_ns += now_ns() - asked;
                seen[i].count++;
            }
        close(ends[0]), close(ends[1]);
    }
    usleep(20000 + (ms + 5) * 1000);
    stop();
    for (int i = 0; i < workers; i++) logs += log(seen[i].sum_ns / seen[i].count);
    munmap(seen, 4096);
    return exp(logs / workers);
}

struct lives {
    double born_ns, ended_ns, last;
};
static double ended_ns;

static void *live(void *last) {
    *(double *)last = now_ns();
    return NULL;
}

static double births(const char *dir, char kind, int all) {
    struct lives *lives = mmap(NULL, sizeof *lives, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    double born_ns;
    if (lives == MAP_FAILED) fail("mmap");
    pid_t maker = begin(dir, 0);
    if (!maker) {
        for (int i = 0; i < all; i++) {
            pthread_t thread;
            pid_t pid = 0;
            double start = now_ns();
            if (kind == 't' && pthread_create(&thread, NULL, live, &lives->last)) _exit(1);
            if (kind == 'p' && !(pid = fork())) {
                live(&lives->last);
                _exit(0);
            }
            lives->born_ns += now_ns() - start;
            if (kind == 't') pthread_join(thread, NULL);
            else if (pid < 0 || waitpid(pid, NULL, 0) != pid) _exit(1);
            lives->ended_ns += now_ns() - lives->last;
        }
        _exit(0);
    }
    int status;
    if (waitpid(maker, &status, 0) != maker) fail("waitpid");
    count--;
    born_ns = status ? NAN : lives->born_ns / all;
    ended_ns = status ? NAN : lives->ended_ns / all;
    munmap(lives, sizeof *lives);
    return born_ns;
}

static double run_on(int cpu) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    return sched_setaffinity(0, sizeof one, &one) == 0;
}

int main(void) {
    char line[4096], dir[4096], kind;
    int one, other, ring_of = 1;
    long number;
    run_on(sysconf(_SC_NPROCESSORS_ONLN) - 1);
    while (fgets(line, sizeof line, stdin)) {
        double answer = 0;
        if (sscanf(line, "ring %4095s %d %d", dir, &one, &other) == 3) {
            ring_of = one;
            answer = ring(dir, one, other);
        } else if (sscanf(line, "hops %ld", &number) == 1) {
            answer = hops(number, ring_of);
        } else if (sscanf(line, "cpu %d", &one) == 1) {
            answer = run_on(one);
        } else if (!strncmp(line, "stop", 4)) {
            stop();
            close(questions[0]), close(questions[1]), close(results[0]), close(results[1]);
            answer = 1;
        } else if (sscanf(line, "serve %4095s %d %d", dir, &one, &other) == 3) {
            answer = serve(dir, one, other);
        } else if (sscanf(line, "births %4095s %c %d", dir, &kind, &one) == 3)
            answer = births(dir, kind, one);
        else if (!strncmp(line, "ends", 4))
            answer = ended_ns;
        printf("%.3f\n", answer);
        fflush(stdout);
    }
    stop();
    return 0;
}
