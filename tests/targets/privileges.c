// cflags: -O2 -pthread
// privileges MODE [wait]: makes calls that the thread of tiptoe's library would break. After `setuid` no thread may
// keep rights; with `single` libc must know one thread only; `child` acts like a server's worker.
#include "common.h"
#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/single_threaded.h>
#include <sys/stat.h>
#include <sys/wait.h>

PROBED int called(int x) { KEEP(); return x + 1; }

// Checks all threads, even those that libc did not start.
static int any_has_rights(void) {
    DIR *folder = opendir("/proc/self/task");
    int any = 0, threads = 0;
    CHECK(folder != NULL);
    for (struct dirent *entry; (entry = readdir(folder));) {
        char path[300], line[4096];
        if (entry->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "/proc/self/task/%s/status", entry->d_name);
        FILE *status = fopen(path, "r");
        if (status == NULL) continue;
        threads++;
        while (fgets(line, sizeof line, status)) {
            unsigned id, group;
            unsigned long long set;
            if (sscanf(line, "Uid: %u", &id) == 1 || sscanf(line, "Gid: %u", &id) == 1) any |= id == 0;
            if (sscanf(line, "Groups: %u", &group) == 1) any |= group == 77;
            if (sscanf(line, "CapPrm: %llx", &set) == 1 || sscanf(line, "CapEff: %llx", &set) == 1) any |= set != 0;
        }
        fclose(status);
    }
    closedir(folder);
    CHECK(threads >= 2);
    return any;
}

static void child(void) {
    int status;
    pid_t id = fork();
    CHECK(id >= 0);
    if (id > 0) {
        CHECK(waitpid(id, &status, 0) == id && status == 0);
        return;
    }
    alarm(6);
    struct sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog filter = {1, &allow};
    CHECK(geteuid() != 0 || setuid(65534) == 0);
    CHECK(unshare(CLONE_NEWUSER) == 0);
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0);
    usleep(50000);
    struct stat tasks;
    CHECK(stat("/proc/self/task", &tasks) == 0 && tasks.st_nlink == 2 + 1);
    _exit(0);
}

static void *stay(void *unused) { (void)unused; for (;;) pause(); return NULL; }

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "single";
    pthread_t id;
    gid_t group = 77;
    CHECK(strcmp(mode, "setuid") || setgroups(1, &group) == 0);
    wait_for_start(argc, argv);
    for (int i = 0; i < 1000; i++) CHECK(called(i) == i + 1);
    if (!strcmp(mode, "setuid")) {
        CHECK(pthread_create(&id, NULL, stay, NULL) == 0);
        int dumpable = prctl(PR_GET_DUMPABLE);
        CHECK(dumpable == 1);
        CHECK(setgroups(0, NULL) == 0 && setgid(65534) == 0 && setuid(65534) == 0);
        CHECK(!any_has_rights());
    } else if (!strcmp(mode, "unshare")) {
        CHECK(unshare(CLONE_NEWUSER) == 0);
    } else if (!strcmp(mode, "setns")) {
        int fd = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
        CHECK(fd >= 0 && setns(fd, CLONE_NEWNS) == 0);
    } else if (!strcmp(mode, "child")) {
        child();
    } else {
        CHECK(__libc_single_threaded);
    }
    for (int i = 0; i < 1000; i++) CHECK(called(i) == i + 1);
    expect("called", 2000);
    return 0;
}
