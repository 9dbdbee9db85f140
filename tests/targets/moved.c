// cflags: -O2 -ldl
// moved HOW CALLS [LIBRARY] [wait]: gives the code of functions another address, and calls them there.
//   all     moves the functions' page and the pages around it
//   keep    leaves the old address mapped to the file (MREMAP_DONTUNMAP)
//   again   maps the file's page once more
//   grown   maps the page before it once more, and lets that mapping grow
//   written maps the file's page writable, and makes it executable
//   fixed   maps the file's page over the functions' page
//   array   grows an array past the code of libc
//   stale   moves an array of trap bytes, mapped where a closed library was
//   Others move the functions' page: `child` in a child, `inline` by an inline system call.
#include "common.h"
#include <dlfcn.h>
#include <link.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { PAGE = 4096, AROUND = 64, PAGES = 2 * AROUND + 1 };

__asm__(".section .text.pages,\"ax\",@progbits\n"
        ".p2align 12\n"
        "first_page: .fill 64 * 4096, 1, 0xcc\n"
        ".globl long_one\n.type long_one,@function\n"
        "long_one: lea 1(%rdi), %rax\nadd $41, %rax\nret\n"
        ".size long_one, .-long_one\n"
        ".p2align 6\n"
        ".globl tiny\n.type tiny,@function\n"
        "tiny: mov %edi, %eax\nret\n"
        ".size tiny, .-tiny\n"
        "mov %rdi, %rcx\nmov %rcx, %rdx\nmov %rdx, %rsi\nret\n"
        ".p2align 12\n"
        ".fill 64 * 4096, 1, 0xcc\n"
        ".text\n");
extern char first_page[];
long long_one(long a);
int tiny(int a);

static void call(uint64_t calls, ptrdiff_t by) {
    long (*volatile one)(long) = (long (*)(long))((char *)&long_one + by);
    int (*volatile other)(int) = (int (*)(int))((char *)&tiny + by);
    for (uint64_t i = 0; i < calls; i++) CHECK(one((long)i) == (long)i + 42 && other((int)i) == (int)i);
}

static ptrdiff_t in_file;

static int of_program(struct dl_phdr_info *info, size_t size, void *unused) {
    (void)size, (void)unused;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        const uint64_t place = (uint64_t)&long_one - info->dlpi_addr;
        if (header->p_type == PT_LOAD && place - header->p_vaddr < header->p_filesz)
            in_file = (ptrdiff_t)(place - header->p_vaddr + header->p_offset);
    }
    return 1;
}

static ptrdiff_t again(const char *how) {
    CHECK(dl_iterate_phdr(of_program, NULL) == 1);
    const int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    CHECK(file >= 0);
    char *first = first_page + AROUND * PAGE, *page = NULL;
    const off_t offset = in_file & -PAGE;
    if (!strcmp(how, "written")) {
        page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, offset);
        CHECK(mprotect(page, PAGE, PROT_READ | PROT_EXEC) == 0);
    } else if (!strcmp(how, "grown")) {
        page = mmap(NULL, PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, offset - PAGE);
        page = (char *)mremap(page, PAGE, 2 * PAGE, MREMAP_MAYMOVE) + PAGE;
    } else if (!strcmp(how, "fixed")) {
        page = mmap(first, PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED, file, offset);
        CHECK(page == first);
    } else {
        page = mmap(NULL, PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, offset);
    }
    CHECK(page != MAP_FAILED && close(file) == 0);
    return page - first;
}

static unsigned char *array_moved(unsigned char *from, size_t len) {
    unsigned char *to = mmap(NULL, len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(to != MAP_FAILED && mremap(from, len, len, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
    return to;
}

static void grow_array(void) {
    for (size_t size = 1 << 17; size < 1 << 28; size *= 2) {
        void *array = malloc(size);
        CHECK(array && (array = realloc(array, 2 * size)));
        free(array);
    }
}

static void move_traps(const char *library) {
    void *handle = dlopen(library, RTLD_NOW);
    CHECK(handle != NULL);
    int (*volatile trap)(int) = (int (*)(int))dlsym(handle, "plugin_trap");
    CHECK(trap && trap(1) == 7 && dlclose(handle) == 0);
    unsigned char *at = (unsigned char *)((uintptr_t)trap & -(uintptr_t)PAGE);
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
    CHECK(mmap(at, PAGE, PROT_READ | PROT_WRITE, flags, -1, 0) == at);
    memset(at, 0xcc, PAGE);
    at = array_moved(at, PAGE);
    for (int i = 0; i < PAGE; i++) CHECK(at[i] == 0xcc);
}

static ptrdiff_t move(size_t pages, int flags) {
    char *from = first_page + (pages == 1 ? AROUND : 0) * PAGE;
    char *to = mmap(NULL, pages * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(to != MAP_FAILED);
    CHECK(mremap(from, pages * PAGE, pages * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED | flags, to) == to);
    return to - from;
}

static ptrdiff_t move_inline(void) {
    char *from = first_page + AROUND * PAGE, *moved;
    char *const place = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    register long flags __asm__("r10") = MREMAP_MAYMOVE | MREMAP_FIXED;
    register char *to __asm__("r8") = place;
    __asm__ volatile("mov $25, %%eax\n\tsyscall" : "=a"(moved)
                     : "D"(from), "S"((long)PAGE), "d"((long)PAGE), "r"(flags), "r"(to) : "rcx", "r11", "memory");
    CHECK(moved == to);
    return to - from;
}

int main(int argc, char **argv) {
    CHECK(argc > 2);
    const char *how = argv[1];
    const uint64_t calls = strtoull(argv[2], NULL, 0);
    wait_for_start(argc, argv);
    call(calls, 0);
    if (!strcmp(how, "child")) {
        const pid_t child = fork();
        CHECK(child >= 0);
        int status;
        if (!child) {
            call(calls, move(1, 0));
            _exit(0);
        }
        CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    } else if (strstr("again grown written fixed", how)) {
        call(calls, again(how));
    } else if (!strcmp(how, "array")) {
        grow_array();
    } else if (!strcmp(how, "stale")) {
        move_traps(argv[3]);
    } else if (!strcmp(how, "inline")) {
        call(calls, move_inline());
    } else if (!strcmp(how, "keep")) {
        call(calls, move(1, MREMAP_DONTUNMAP));
    } else {
        call(calls, move(strcmp(how, "all") ? 1 : PAGES, 0));
    }
    expect("long_one", calls);
    expect("tiny", calls);
    puts("done");
    fflush(stdout);
    char byte;
    while (read(0, &byte, 1) > 0) {}
    return 0;
}
