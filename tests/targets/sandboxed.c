// cflags: -O2 -pthread
// sandboxed FILTER CALLS [WHEN] [wait]: installs a filter, then calls the probed function. FILTER: `refuse` (EPERM
// for the first calls of tiptoe's library), `kill` (kills for them), `mild` (refuses reboot), `unfenced` (refuses
// membarrier), or `strict` (allows only reading, writing and exit). WHEN: `first` (before waiting), `late` (after
// waiting), or `tsync` (after waiting, for every thread).
#include "common.h"
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define ALLOW SECCOMP_RET_ALLOW
#define EQUAL(number, action) \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), BPF_STMT(BPF_RET | BPF_K, action)
#define LOAD BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))
#define ELSE(action) BPF_STMT(BPF_RET | BPF_K, action)

PROBED int guarded(int x) { KEEP(); return x + 1; }

static void filter(const char *kind, int every_thread) {
    unsigned hard = strcmp(kind, "kill") ? SECCOMP_RET_ERRNO | EPERM : SECCOMP_RET_KILL_PROCESS;
    struct sock_filter entering[] = {
        LOAD, EQUAL(SYS_mmap, hard), EQUAL(SYS_clone, hard), EQUAL(SYS_clone3, hard),
        EQUAL(SYS_memfd_create, hard), EQUAL(SYS_membarrier, hard), ELSE(ALLOW)};
    struct sock_filter mild[] = {LOAD, EQUAL(SYS_reboot, SECCOMP_RET_ERRNO | EPERM), ELSE(ALLOW)};
    struct sock_filter unfenced[] = {LOAD, EQUAL(SYS_membarrier, SECCOMP_RET_ERRNO | EPERM), ELSE(ALLOW)};
    struct sock_filter strict[] = {
        LOAD, EQUAL(SYS_read, ALLOW), EQUAL(SYS_write, ALLOW), EQUAL(SYS_exit, ALLOW),
        EQUAL(SYS_exit_group, ALLOW), EQUAL(SYS_rt_sigreturn, ALLOW), ELSE(SECCOMP_RET_KILL_PROCESS)};
    struct sock_fprog program = {sizeof entering / sizeof *entering, entering};
    if (!strcmp(kind, "mild")) program = (struct sock_fprog){sizeof mild / sizeof *mild, mild};
    if (!strcmp(kind, "unfenced")) program = (struct sock_fprog){sizeof unfenced / sizeof *unfenced, unfenced};
    if (!strcmp(kind, "strict")) program = (struct sock_fprog){sizeof strict / sizeof *strict, strict};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    if (every_thread) {
        // libseccomp tries this call first.
        CHECK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, NULL) == -1 && errno == EFAULT);
        CHECK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0);
        return;
    }
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

static void *sleeper(void *nothing) {
    for (;;) pause();
    return nothing;
}

int main(int argc, char **argv) {
    uint64_t calls = number(argc, argv, 2, 1000);
    int tsync = argc > 3 && !strcmp(argv[3], "tsync");
    int late = tsync || (argc > 3 && !strcmp(argv[3], "late"));
    static char room[4096];
    CHECK(argc > 1);
    CHECK(setvbuf(stdout, room, _IOLBF, sizeof room) == 0);  // without it, the first output makes a system call
    if (!late) filter(argv[1], 0);
    pthread_t other;
    if (!strcmp(argv[1], "unfenced")) CHECK(pthread_create(&other, NULL, sleeper, NULL) == 0);
    wait_for_start(argc, argv);
    if (late) filter(argv[1], tsync);
    for (uint64_t i = 0; i < calls; i++) CHECK(guarded((int)i) == (int)i + 1);
    expect("guarded", calls);
    return 0;
}
