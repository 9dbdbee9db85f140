// cflags: -O2 -pthread
// mmap_contended MAPPERS FAULTERS MILLISECONDS [wait]: mappers take one mmap_lock for writing, faulters for reading.
#include "common.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

enum { PAGE = 4096, PAGES = 16, THREADS = 64 };

static atomic_bool over;
static atomic_ullong maps, faults;

static char *map(void) {
    char *at = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED);
    return at;
}

static void *mapper(void *none) {
    while (!over) {
        char *at = map();
        at[0] = 1;
        CHECK(munmap(at, PAGES * PAGE) == 0);
        maps++;
    }
    return none;
}

static void *faulter(void *none) {
    char *at = map();
    while (!over) {
        for (int page = 0; page < PAGES; page++) at[page * PAGE] = 1;
        CHECK(madvise(at, PAGES * PAGE, MADV_DONTNEED) == 0);
        faults += PAGES;
    }
    return none;
}

int main(int argc, char **argv) {
    pthread_t threads[THREADS];
    uint64_t mappers = number(argc, argv, 1, 6), all = mappers + number(argc, argv, 2, 2);
    uint64_t milliseconds = number(argc, argv, 3, 300);
    CHECK(all <= THREADS);
    wait_for_start(argc, argv);
    for (uint64_t i = 0; i < all; i++)
        CHECK(pthread_create(&threads[i], NULL, i < mappers ? mapper : faulter, NULL) == 0);
    usleep(milliseconds * 1000);
    over = 1;
    for (uint64_t i = 0; i < all; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    expect("mmap", maps);
    expect("fault", faults);
    return 0;
}
