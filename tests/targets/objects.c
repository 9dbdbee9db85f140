// cflags: -O2 -ldl
// objects [wait]: unloads a library, then prints what `dl_iterate_phdr` and `dladdr` find.
#include "common.h"
#include <dlfcn.h>
#include <link.h>

PROBED int called(int x) { KEEP(); return x + 1; }

static int show(struct dl_phdr_info *object, size_t size, void *unused) {
    Dl_info info;
    (void)size, (void)unused;
    if (object->dlpi_addr == 0 || dladdr((void *)object->dlpi_addr, &info) == 0) return 0;
    CHECK(*object->dlpi_name == '\0' || strcmp(info.dli_fname, object->dlpi_name) == 0);
    printf("object %s\n", object->dlpi_name);
    return 0;
}

int main(int argc, char **argv) {
    wait_for_start(argc, argv);
    CHECK(called(1) == 2);
    void *library = dlopen("libanl.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) library = dlopen("libutil.so.1", RTLD_NOW | RTLD_LOCAL);
    CHECK(library != NULL && dlclose(library) == 0);
    dl_iterate_phdr(show, NULL);
    return 0;
}
