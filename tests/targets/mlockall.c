// cflags: -O2
// mlockall FLAGS CALLS [own] [wait]: calls mlockall(FLAGS) in a child and itself; `own` by an inline system call.
#include "common.h"
#include <sys/wait.h>

PROBED int called(int x) { KEEP(); return x + 1; }

static long kilobytes(const char *what) {
    char line[200], format[40];
    long found = -1;
    snprintf(format, sizeof format, "%s: %%ld", what);
    FILE *status = fopen("/proc/self/status", "r");
    CHECK(status != NULL);
    while (fgets(line, sizeof line, status)) if (sscanf(line, format, &found) == 1) break;
    fclose(status);
    return found;
}

static int is_own;

static void lock_all(const char *who, int flags) {
    int error = is_own ? (int)-own_call(SYS_mlockall, flags, 0, 0, 0, 0) : mlockall(flags) == 0 ? 0 : errno;
    printf("%s returned %d locked %ld resident %ld\n", who, error, kilobytes("VmLck"), kilobytes("VmRSS"));
    fflush(stdout);
}

int main(int argc, char **argv) {
    int flags = (int)number(argc, argv, 1, MCL_CURRENT);
    uint64_t calls = number(argc, argv, 2, 100);
    is_own = argc > 3 && !strcmp(argv[3], "own");
    kilobytes("VmLck"); // allocates memory now, so that each measurement includes it
    wait_for_start(argc, argv);
    for (uint64_t i = 0; i < calls; i++) CHECK(called((int)i) == (int)i + 1);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        lock_all("child", flags);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    lock_all("program", flags);
    void *more = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    printf("later returned %d locked %ld resident %ld\n", more == MAP_FAILED ? errno : 0, kilobytes("VmLck"), kilobytes("VmRSS"));
    expect("called", calls);
    return 0;
}
