// cflags: -O2
// becomes [wait]: calls exec once an agent's thread (of tiptoe's library) exists.
#include "agent_thread.h"

int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "again")) {
        while (getchar() != EOF) continue;
        return 0;
    }
    wait_for_start(argc, argv);
    while (agent_thread("self") == 0) continue;
    execl("/proc/self/exe", argv[0], "again", NULL);
    return 98;
}
