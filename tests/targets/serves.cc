// cflags: -O2 -pthread
// serves SOCKET: a thread for each connection answers its lines. Every third number is thrown through probed frames.
#include "ret_common.h"
#include <stdexcept>
#include <string>
#include <sys/socket.h>
#include <sys/un.h>
#include <thread>

CALLS(parses); CALLS(doubles); CALLS(answers);

struct Guard {
    std::string &log;
    char mark;
    ~Guard() { log += mark; }
};

extern "C" {
PROBED long parses(const std::string &line, std::string &log) {
    ENTER(parses);
    Guard guard{log, 'p'};
    long value = std::stol(line);
    if (value % 3 == 0) throw std::invalid_argument("three");
    LEAVE(parses);
    return value;
}

PROBED long doubles(const std::string &line, std::string &log) {
    ENTER(doubles);
    Guard guard{log, 'd'};
    long value = 2 * parses(line, log);
    LEAVE(doubles);
    return value;
}

PROBED void answers(const std::string &line, std::string &answer) {
    ENTER(answers);
    std::string log;
    try {
        Guard guard{log, 'a'};
        answer = std::to_string(doubles(line, log));
    } catch (const std::exception &error) {
        answer = error.what();
    }
    answer += " " + log + "\n";
    LEAVE(answers);
}
}

static void quit() {
    TELL(parses);
    TELL(doubles);
    TELL(answers);
    exit(0);
}

static void serves(int connection) {
    std::string line, answer;
    for (char c; read(connection, &c, 1) == 1;) {
        if (c != '\n') { line += c; continue; }
        if (line == "quit") quit();
        answers(line, answer);
        CHECK(write(connection, answer.data(), answer.size()) == (ssize_t)answer.size());
        line.clear();
    }
    close(connection);
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    CHECK(strlen(argv[1]) < sizeof address.sun_path);
    strcpy(address.sun_path, argv[1]);
    int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(bind(listener, (sockaddr *)&address, sizeof address) == 0 && listen(listener, 64) == 0);
    for (;;) {
        int connection = accept(listener, nullptr, nullptr);
        CHECK(connection >= 0);
        std::thread(serves, connection).detach();
    }
}
