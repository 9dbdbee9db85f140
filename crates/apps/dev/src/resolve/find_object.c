// Looks up the libraries of random addresses with glibc, in pinned threads at once, for MS milliseconds.
//
//   find-object THREADS MS   prints the number of libraries, and millions of lookups a second by all threads
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "pinned.h"

enum { MOST = 128, THREADS = 64, BATCH = 256 };

static struct { uintptr_t start, size; } code[MOST];
static int parts, objects;
static double seconds;
static pthread_barrier_t begin;

struct looked {
    int thread;
    uint64_t count;
    double start, end;
};

static int each(struct dl_phdr_info *info, size_t size, void *data) {
    (void)size, (void)data;
    objects++;
    for (int i = 0; i < info->dlpi_phnum && parts < MOST; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        if (header->p_type == PT_LOAD && header->p_flags & PF_X) {
            code[parts].start = info->dlpi_addr + header->p_vaddr;
            code[parts++].size = header->p_memsz;
        }
    }
    return 0;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

static void *look(void *argument) {
    struct looked *own = argument;
    uint64_t state = (uintptr_t)&state | 1, looked = 0, found = 0;
    pin_to_cpu(own->thread);
    pthread_barrier_wait(&begin);
    own->start = now();
    do {
        for (int i = 0; i < BATCH; i++) {
            state ^= state << 13, state ^= state >> 7, state ^= state << 17;
            unsigned part = (state >> 32) * parts >> 32;
            struct dl_find_object object;
            found += !_dl_find_object((void *)(code[part].start + (uint32_t)state % code[part].size), &object);
        }
        looked += BATCH;
        own->end = now();
    } while (own->end - own->start < seconds);
    own->count = found == looked ? looked : 0;
    return NULL;
}

int main(int count, char **words) {
    static const char *const libraries[] = {"libm.so.6", "libstdc++.so.6", "libgcc_s.so.1", "libz.so.1", "liblzma.so.5",
        "libcrypto.so.3", "libssl.so.3", "libresolv.so.2", "libelf.so.1", "libsqlite3.so.0", "libncursesw.so.6"};
    for (unsigned i = 0; i < sizeof libraries / sizeof *libraries; i++)
        dlopen(libraries[i], RTLD_NOW);
    dl_iterate_phdr(each, NULL);
    int threads = count > 2 ? atoi(words[1]) : 1;
    seconds = count > 2 ? atof(words[2]) / 1e3 : 0.01;
    if (threads < 1 || threads > THREADS)
        return 2;
    pthread_t started[THREADS];
    struct looked all[THREADS] = {0};
    double total = 0, start = 0, end = 0;
    pthread_barrier_init(&begin, NULL, threads);
    for (int i = 0; i < threads; i++) {
        all[i].thread = i;
        if (pthread_create(&started[i], NULL, look, &all[i]))
            return 3;
    }
    for (int i = 0; i < threads; i++) {
        pthread_join(started[i], NULL);
        if (all[i].count == 0)
            return 4;
        total += all[i].count;
        if (i == 0 || all[i].start < start) start = all[i].start;
        if (all[i].end > end) end = all[i].end;
    }
    printf("%d %f\n", objects, total / (end - start) / 1e6);
    return 0;
}
