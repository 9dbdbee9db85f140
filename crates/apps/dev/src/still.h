#include <fcntl.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static double seconds(clockid_t clock) {
    struct timespec at;
    clock_gettime(clock, &at);
    return (double)at.tv_sec + (double)at.tv_nsec / 1e9;
}

static double queued(int fd) {
    char text[100] = "";
    long long ran, waited = 0;
    if (pread(fd, text, sizeof text - 1, 0) > 0) sscanf(text, "%lld %lld", &ran, &waited);
    return (double)waited / 1e9;
}

// Returns the longest time in ns that this thread did not run, without the time that it waited for a CPU.
__attribute__((noinline, noclone)) static double gap(double limit) {
    int fd = open("/proc/thread-self/schedstat", O_RDONLY);
    double longest = 0, from = seconds(CLOCK_MONOTONIC), last = from, now, waited = queued(fd);
    do {
        now = seconds(CLOCK_MONOTONIC);
        if (now - last > 5e-5) {
            double before = waited;
            waited = queued(fd);
            double still = now - last - (waited - before);
            if (still > longest) longest = still;
            now = seconds(CLOCK_MONOTONIC);
        }
        last = now;
    } while (now - from < limit);
    close(fd);
    return longest * 1e9;
}
