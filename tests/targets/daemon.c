// cflags: -O2
// daemon HOW [wait]: gives up root, so that it cannot write to /proc/self/mem. HOW: drops, or locked (a seccomp filter
// also refuses process_vm_writev).
#include "common.h"
#include <fcntl.h>
#include <grp.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

static void lock(void) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_writev, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

PROBED uint64_t work(uint64_t x) { KEEP(); return x * 3 + 1; }

int main(int argc, char **argv) {
    uint64_t calls = 0, value = 1;
    struct pollfd input = {.fd = 0, .events = POLLIN};
    if (argc > 1 && !strcmp(argv[1], "locked")) lock();
    CHECK(setgroups(0, NULL) == 0 && setgid(65534) == 0 && setuid(65534) == 0);
    CHECK(open("/proc/self/mem", O_RDWR) < 0);
    wait_for_start(argc, argv);
    while (calls < 10 || poll(&input, 1, 1) == 0) {
        CHECK(work(value) == value * 3 + 1);
        value++;
        calls++;
    }
    expect("work", calls);
    return 0;
}
