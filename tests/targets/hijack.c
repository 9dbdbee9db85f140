// hijack PID: makes an agent's thread (of tiptoe's library) execute system calls, as another thread could by
// writing to the agent's stack.
#include "agent_thread.h"
#include <fcntl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>

enum { GET_KEYRING_ID = 0, READ_KEY = 11, SESSION_KEYRING = -3 };

static pid_t thread;
static int memory;
static struct user_regs_struct saved;
static unsigned long instruction;

static unsigned long find_instruction(const char *process) {
    char path[64], line[512], permissions[8];
    unsigned long start, end;
    snprintf(path, sizeof path, "/proc/%s/maps", process);
    FILE *maps = fopen(path, "r");
    CHECK(maps != NULL);
    while (fgets(line, sizeof line, maps)) {
        if (strstr(line, "tiptoe-agent") == NULL) continue;
        if (sscanf(line, "%lx-%lx %7s", &start, &end, permissions) != 3 || permissions[2] != 'x') continue;
        for (unsigned char two[2]; start < end; start++)
            if (pread(memory, two, 2, start) == 2 && two[0] == 0x0f && two[1] == 0x05) return start;
    }
    CHECK(0);
    return 0;
}

static void stopped(void) {
    int status;
    CHECK(waitpid(thread, &status, __WALL) == thread && WIFSTOPPED(status));
}

// `text` is an argument, copied below the thread's stack.
static void call(const char *name, long number, long first, const char *text, long second, long third) {
    struct user_regs_struct regs = saved;
    unsigned long room = saved.rsp - 4096;
    regs.rax = number;
    regs.orig_rax = -1;
    regs.rip = instruction;
    regs.rdi = first;
    regs.rsi = second;
    regs.rdx = third;
    regs.r10 = 0;
    if (text != NULL) {
        CHECK(pwrite(memory, text, strlen(text) + 1, room) == (ssize_t)strlen(text) + 1);
        if (number == SYS_openat) regs.rsi = room;
        else regs.rdi = room;
    }
    CHECK(ptrace(PTRACE_SETREGS, thread, 0, &regs) == 0);
    // A single step would raise SIGTRAP. The thread blocks SIGTRAP, and for a blocked fault the kernel resets the
    // program's handler.
    for (int stop = 0; stop < 2; stop++) {
        CHECK(ptrace(PTRACE_SYSCALL, thread, 0, 0) == 0);
        stopped();
    }
    CHECK(ptrace(PTRACE_GETREGS, thread, 0, &regs) == 0);
    printf("%s %lld\n", name, (long long)regs.rax);
}

int main(int argc, char **argv) {
    char path[64];
    CHECK(argc > 2 && (thread = agent_thread(argv[1])) > 0);
    snprintf(path, sizeof path, "/proc/%s/mem", argv[1]);
    CHECK((memory = open(path, O_RDWR)) >= 0);
    instruction = find_instruction(argv[1]);
    CHECK(ptrace(PTRACE_SEIZE, thread, 0, 0) == 0 && ptrace(PTRACE_INTERRUPT, thread, 0, 0) == 0);
    stopped();
    CHECK(ptrace(PTRACE_GETREGS, thread, 0, &saved) == 0);
    call("setuid", SYS_setuid, 0, NULL, 0, 0);
    call("setgroups", SYS_setgroups, 0, NULL, 0, 0);
    call("read", SYS_openat, AT_FDCWD, "/etc/passwd", 0, O_RDONLY);
    call("create", SYS_openat, AT_FDCWD, "/tmp/tiptoe-hijacked", 0, O_CREAT | O_WRONLY);
    call("chmod", SYS_chmod, 0, argv[2], 0666, 0);
    call("chroot", SYS_chroot, 0, "/", 0, 0);
    call("kill", SYS_kill, getppid(), NULL, 0, 0);
    call("ptrace", SYS_ptrace, PTRACE_SEIZE, NULL, getppid(), 0);
    call("setpriority", SYS_setpriority, 0, NULL, 0, -20);
    // The traced program shares this session keyring.
    long keyring = syscall(SYS_keyctl, GET_KEYRING_ID, SESSION_KEYRING, 0);
    call("keys", SYS_keyctl, READ_KEY, NULL, keyring, 0);
    CHECK(ptrace(PTRACE_SETREGS, thread, 0, &saved) == 0 && ptrace(PTRACE_DETACH, thread, 0, 0) == 0);
    return 0;
}
