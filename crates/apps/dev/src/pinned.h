// Pins threads, each to one CPU, for measurements by the wall clock.
#include <pthread.h>
#include <sched.h>

static void pin_to_cpu(int thread) {
    cpu_set_t allowed, one;
    if (sched_getaffinity(0, sizeof allowed, &allowed) || !CPU_COUNT(&allowed)) return;
    int turn = thread % CPU_COUNT(&allowed);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &allowed) || turn--) continue;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        sched_setaffinity(0, sizeof one, &one);
        return;
    }
}
