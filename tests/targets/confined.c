// cflags: -O2 -pthread
// confined WAYS CALLS [wait]: gives up the rights of WAYS, separated by `:`. Before and after, it calls the probed
// function CALLS times; in between it prints `done` and waits for a line. A way is a NAME of `give_up`, through libc,
// or `inline-NAME`, by an inline system call.
#include "common.h"
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80
#endif

PROBED int called(int x) { __asm__ volatile(".skip 16, 0x90"); return x + 1; }

// tiptoe patches (hooks) no system call whose number is copied from another register. tiptoe knows that such a call
// does not block signals, because only constants are moved to that register.
#define OWN_CALL(number, a, b, c)                                                                     \
    ({                                                                                                \
        register long r10 __asm__("r10") = 0;                                                         \
        register long r8 __asm__("r8") = 0;                                                           \
        long result;                                                                                  \
        __asm__ volatile("mov %1, %%r15d; mov %%r15d, %%eax; syscall"                                 \
                         : "=&a"(result)                                                              \
                         : "i"(number), "D"((long)(a)), "S"((long)(b)), "d"((long)(c)), "r"(r10), "r"(r8) \
                         : "rcx", "r11", "r15", "memory");                                            \
        result < 0 ? (errno = (int)-result, -1) : result;                                             \
    })
#define MAKE(number, libc, a, b, c) (is_inline ? OWN_CALL(number, a, b, c) : (long)(libc))
#define MAKE_ANY(number, a, b, c) MAKE(number, syscall(number, a, b, c), a, b, c)
#define UNSHARE(flags) CHECK(MAKE(SYS_unshare, unshare(flags), flags, 0, 0) == 0)
#define SET_NO_NEW_PRIVS() \
    CHECK(MAKE(SYS_prctl, prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), PR_SET_NO_NEW_PRIVS, 1, 0) == 0)

static int is_inline;

static void join_pid(void) {
    int status, ends[2];
    char path[64], byte;
    CHECK(pipe(ends) == 0);
    pid_t id = fork();
    CHECK(id >= 0);
    if (id == 0) {
        CHECK(close(ends[1]) == 0 && OWN_CALL(SYS_unshare, CLONE_NEWPID, 0, 0) == 0);
        pid_t first = fork();
        CHECK(first >= 0 && read(ends[0], &byte, 1) == 0);
        _exit(first > 0 && waitpid(first, &status, 0) != first);
    }
    snprintf(path, sizeof path, "/proc/%d/ns/pid_for_children", id);
    // Until the new namespace has a process, the link is missing or names the old one.
    struct stat own, other;
    int fd;
    CHECK(stat("/proc/self/ns/pid_for_children", &own) == 0);
    for (;;) {
        fd = open(path, O_RDONLY | O_CLOEXEC);
        CHECK(fd >= 0 ? fstat(fd, &other) == 0 : errno == ENOENT);
        if (fd >= 0 && other.st_ino != own.st_ino) break;
        if (fd >= 0) close(fd);
    }
    long result = MAKE(SYS_setns, setns(fd, 0), fd, 0, 0);
    CHECK(result == 0 && close(fd) == 0 && close(ends[0]) == 0 && close(ends[1]) == 0);
    CHECK(waitpid(id, &status, 0) == id && status == 0);
}

static void filter(int flags) {
    struct sock_filter load[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_reboot, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    struct sock_fprog program = {4, load};
    SET_NO_NEW_PRIVS();
    CHECK(MAKE_ANY(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program) == 0);
}

static void only_read_and_write(void) {
#define MAY(number) \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
    struct sock_filter strict[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0), MAY(SYS_read), MAY(SYS_write), MAY(SYS_futex), MAY(SYS_exit),
        MAY(SYS_exit_group), MAY(SYS_rt_sigreturn), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)};
    struct sock_fprog program = {sizeof strict / sizeof *strict, strict};
    static char room[4096];
    CHECK(setvbuf(stdout, room, _IOLBF, sizeof room) == 0);  // without it, the first output makes a system call
    SET_NO_NEW_PRIVS();
    CHECK(MAKE_ANY(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0);
}

static void drop_capabilities(void) {
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct none[2] = {{0}};
    CHECK(MAKE_ANY(SYS_capset, &header, none, 0) == 0);
}

static void landlock(void) {
    struct landlock_ruleset_attr denied = {.handled_access_fs = LANDLOCK_ACCESS_FS_WRITE_FILE};
    long rules = MAKE_ANY(SYS_landlock_create_ruleset, &denied, sizeof denied.handled_access_fs, 0);
    SET_NO_NEW_PRIVS();
    CHECK(rules >= 0 && MAKE_ANY(SYS_landlock_restrict_self, rules, 0, 0) == 0 && close((int)rules) == 0);
}

static void change_root(void) { CHECK(MAKE(SYS_chroot, chroot("/proc"), "/proc", 0, 0) == 0); }

static void give_up(const char *way) {
    is_inline = !strncmp(way, "inline-", 7);
    if (is_inline) way += 7;
    if (!strcmp(way, "pid")) UNSHARE(CLONE_NEWPID);
    else if (!strcmp(way, "time")) UNSHARE(CLONE_NEWTIME);
    else if (!strcmp(way, "join-pid")) join_pid();
    else if (!strcmp(way, "user-pid")) UNSHARE(CLONE_NEWUSER | CLONE_NEWPID);
    else if (!strcmp(way, "net")) UNSHARE(CLONE_NEWNET);
    else if (!strcmp(way, "mnt")) UNSHARE(CLONE_NEWNS);
    else if (!strcmp(way, "fs-root")) {
        UNSHARE(CLONE_FS);
        change_root();
    } else if (!strcmp(way, "ids"))
        CHECK(MAKE_ANY(SYS_setgroups, 0, 0, 0) == 0 &&
              MAKE(SYS_setresgid, setresgid(65534, 65534, 65534), 65534, 65534, 65534) == 0 &&
              MAKE(SYS_setresuid, setresuid(65534, 65534, 65534), 65534, 65534, 65534) == 0);
    else if (!strcmp(way, "caps")) drop_capabilities();
    else if (!strcmp(way, "nnp")) SET_NO_NEW_PRIVS();
    else if (!strcmp(way, "root")) change_root();
    else if (!strcmp(way, "landlock")) landlock();
    else if (!strcmp(way, "filter")) filter(0);
    else if (!strcmp(way, "strict")) only_read_and_write();
    else if (!strcmp(way, "tsync")) filter(SECCOMP_FILTER_FLAG_TSYNC);
    else CHECK(!strcmp(way, "undumpable") && prctl(PR_SET_DUMPABLE, 0) == 0);
}

int main(int argc, char **argv) {
    char line[64], *rest = NULL;
    uint64_t calls = number(argc, argv, 2, 1000);
    CHECK(argc > 2);
    int is_undumpable = !strcmp(argv[1], "undumpable");
    if (is_undumpable) give_up(argv[1]);
    wait_for_start(argc, argv);
    for (uint64_t i = 0; i < calls; i++) CHECK(called((int)i) == (int)i + 1);
    for (char *way = strtok_r(argv[1], ":", &rest); way; way = strtok_r(NULL, ":", &rest)) give_up(way);
    puts("done");
    fflush(stdout);
    CHECK(read(0, line, sizeof line) > 0);
    CHECK(!is_undumpable || prctl(PR_GET_DUMPABLE) == 0);
    for (uint64_t i = 0; i < calls; i++) CHECK(called((int)i) == (int)i + 1);
    expect("called", 2 * calls);
    return 0;
}
