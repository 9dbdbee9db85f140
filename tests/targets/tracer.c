// cflags: -O2
// tracer CGROUP [wait]: traces context switches by BPF, and counts one cgroup on CPU 0, as another tool would.
#include "common.h"
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/perf_event.h>
#include <sys/syscall.h>

static int on_every_switch(void) {
    struct bpf_insn nothing[] = {{.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0}, {.code = BPF_JMP | BPF_EXIT}};
    union bpf_attr program = {.prog_type = BPF_PROG_TYPE_RAW_TRACEPOINT, .insns = (uint64_t)nothing, .insn_cnt = 2, .license = (uint64_t)"Dual MIT/GPL"};
    int fd = (int)syscall(SYS_bpf, BPF_PROG_LOAD, &program, sizeof program);
    CHECK(fd >= 0);
    union bpf_attr attach = {.raw_tracepoint = {.name = (uint64_t)"sched_switch", .prog_fd = (uint32_t)fd}};
    return (int)syscall(SYS_bpf, BPF_RAW_TRACEPOINT_OPEN, &attach, sizeof attach);
}

static int of_cgroup(const char *path) {
    struct perf_event_attr event = {.type = PERF_TYPE_SOFTWARE, .size = sizeof event, .config = PERF_COUNT_SW_CPU_CLOCK};
    int cgroup = open(path, O_RDONLY | O_DIRECTORY);
    CHECK(cgroup >= 0);
    return (int)syscall(SYS_perf_event_open, &event, cgroup, 0, -1, PERF_FLAG_PID_CGROUP);
}

int main(int argc, char **argv) {
    CHECK(argc > 1);
    CHECK(on_every_switch() >= 0);
    CHECK(of_cgroup(argv[1]) >= 0);
    wait_for_start(argc, argv);
    return 0;
}
