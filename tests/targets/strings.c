// strings ROUNDS: checks the C library's functions for strings and memory.
#include "common.h"

int main(int argc, char **argv) {
    uint64_t rounds = number(argc, argv, 1, 100);
    char text[300], copy[300];
    // Lengths below and above a vector's, because the library has separate code for each.
    for (uint64_t round = 0; round < rounds; round++) {
        size_t length = round % 290 + 1;
        memset(text, 'a' + (int)(round % 20), length);
        text[length] = 0;
        text[length / 2] = 'z';
        CHECK(strlen(text) == length);
        CHECK(strchr(text, 'z') == text + length / 2);
        CHECK(strchr(text, 'y') == NULL);
        CHECK(strrchr(text, 'z') == text + length / 2);
        CHECK(memchr(text, 0, sizeof text) == text + length);
        CHECK(memcpy(copy, text, length + 1) == copy && memcmp(copy, text, length + 1) == 0);
        CHECK(strcmp(copy, text) == 0 && strncmp(copy, text, length) == 0);
        CHECK(memmove(copy + 1, copy, length) == copy + 1 && copy[1] == text[0]);
        KEEP();
    }
    expect("main", 1);
    return 0;
}
