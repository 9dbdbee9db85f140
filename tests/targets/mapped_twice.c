// cflags: -O2
// mapped_twice CALLS [wait]: calls a function at both addresses of a page, as Node.js does.
#include "common.h"
#include <link.h>

enum { PAGE = 4096 };

#define ON_ITS_PAGE PROBED __attribute__((aligned(4096)))
ON_ITS_PAGE int page_copied(int a) { KEEP(); return a * 3 + 1; }
ON_ITS_PAGE int page_first(int a) { KEEP(); return a * 5 + 1; }
ON_ITS_PAGE int page_second(int a) { KEEP(); return a * 7 + 1; }
ON_ITS_PAGE int page_third(int a) { KEEP(); return a * 9 + 1; }

static uint64_t base;

static int of_program(struct dl_phdr_info *info, size_t size, void *unused) {
    (void)size, (void)unused;
    base = info->dlpi_addr;
    return 1;
}

static off_t in_file(const void *address) {
    CHECK(dl_iterate_phdr(of_program, NULL) == 1);
    const ElfW(Phdr) *header = (const ElfW(Phdr) *)getauxval(AT_PHDR);
    const uint64_t place = (uint64_t)address - base;
    for (uint64_t number = getauxval(AT_PHNUM); number--; header++)
        if (header->p_type == PT_LOAD && place - header->p_vaddr < header->p_filesz)
            return (off_t)(place - header->p_vaddr + header->p_offset);
    CHECK(!"it is loaded");
    return 0;
}

int main(int argc, char **argv) {
    const uint64_t calls = strtoull(argv[1], NULL, 0);
    int (*volatile copy)(int);
    const int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    CHECK(file >= 0);
    void *page = mmap(NULL, PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, in_file((void *)page_copied));
    CHECK(page != MAP_FAILED && close(file) == 0);
    copy = (int (*)(int))page;
    wait_for_start(argc, argv);
    int sum = 0;
    for (uint64_t i = 0; i < calls; i++) {
        sum += page_copied((int)i) + copy((int)i);
        sum += page_first((int)i) + page_second((int)i) + page_third((int)i);
    }
    CHECK(sum != 1);
    expect("page_copied", 2 * calls);
    expect("page_first", calls);
    expect("page_second", calls);
    expect("page_third", calls);
    return 0;
}
