// cflags: -O2
// without CALL COMMAND...: runs a command to which the kernel refuses CALL (EPERM): `perf_event_open`, `memfd_create`,
// `bpf` or `process_vm_readv`.
#include "common.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

static const struct { const char *name; unsigned number; } calls[] = {
    {"perf_event_open", SYS_perf_event_open},
    {"memfd_create", SYS_memfd_create},
    {"bpf", SYS_bpf},
    {"process_vm_readv", SYS_process_vm_readv},
};

int main(int argc, char **argv) {
    CHECK(argc > 2);
    unsigned at = 0;
    while (strcmp(calls[at].name, argv[1])) CHECK(++at < sizeof calls / sizeof *calls);
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, calls[at].number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
    execvp(argv[2], argv + 2);
    return 127;
}
