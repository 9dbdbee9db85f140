// cflags: -O2
// cgrouped DIR TASK… : starts a process for each TASK, words separated by commas: a NAME to move to the cgroup
// DIR/NAME; `calls=N`; `faults=N`; `burn=MS`; `sleep=MS`; `pin=CPU`.
#include "common.h"
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

static const char *dir;

static void move_to(const char *name) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    CHECK(mkdir(path, 0755) == 0 || errno == EEXIST);
    strncat(path, "/cgroup.procs", sizeof path - strlen(path) - 1);
    int file = open(path, O_WRONLY);
    CHECK(file >= 0 && write(file, "0", 1) == 1);
    close(file);
}

static void pin(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    CHECK(sched_setaffinity(0, sizeof set, &set) == 0);
}

static uint64_t own_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return now.tv_sec * 1000000000ull + now.tv_nsec;
}

static void do_calls(uint64_t count) {
    for (uint64_t i = 0; i < count; i++) {
        syscall(SYS_getppid);
        if (i % 8 == 7) sched_yield();
    }
}

static void do_task(char *task, char *pages) {
    for (char *word = strtok(task, ","); word; word = strtok(NULL, ",")) {
        char *value = strchr(word, '=');
        uint64_t number = value ? strtoull(value + 1, NULL, 10) : 0;
        if (!value) {
            move_to(word);
        } else if (!strncmp(word, "calls=", 6)) {
            do_calls(number);
        } else if (!strncmp(word, "faults=", 7)) {
            for (uint64_t i = 0; i < number; i++, pages += 4096) *(volatile char *)pages = 1;
        } else if (!strncmp(word, "burn=", 5)) {
            for (uint64_t end = own_ns() + number * 1000000; own_ns() < end;) KEEP();
        } else if (!strncmp(word, "sleep=", 6)) {
            usleep(number * 1000);
        } else if (!strncmp(word, "pin=", 4)) {
            pin(number);
        } else {
            CHECK(!"a word that it knows");
        }
    }
}

int main(int argc, char **argv) {
    int start[2];
    char byte;
    CHECK(argc > 2 && pipe(start) == 0);
    dir = argv[1];
    for (int i = 2; i < argc; i++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child) continue;
        size_t length = 1 << 28;
        char *pages = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(pages != MAP_FAILED && madvise(pages, length, MADV_NOHUGEPAGE) == 0);
        // Does each kind of work once, because page faults and moves of a first use must not be counted.
        char warm[] = "out,faults=1,calls=8,burn=1,sleep=1";
        do_task(warm, pages);
        close(start[1]);
        CHECK(read(start[0], &byte, 1) == 0);
        do_task(argv[i], pages + 4096);
        move_to("out");
        _exit(0);
    }
    close(start[0]);
    usleep(50000);
    close(start[1]);
    for (int i = 2, status; i < argc; i++) CHECK(wait(&status) > 0 && status == 0);
    return 0;
}
