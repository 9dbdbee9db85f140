// cflags: -O2 -std=c++20 -pthread
// mixed_cc: what C++ programs do, after a line of stdin.
#include <cstdio>
#include <iostream>
#include <map>
#include <regex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

static int sink(int n) {
    if (n == 0) throw std::runtime_error("end");
    return sink(n - 1) + n;
}

static long digits(int thread) {
    long sum = 0;
    for (int i = 0; i < 1000; i++) sum += static_cast<long>(std::to_string(i * thread).size());
    return sum;
}

int main() {
    std::string line;
    std::getline(std::cin, line);
    std::map<std::string, long> words;
    for (int i = 0; i < 5000; i++) words["k" + std::to_string(i % 371)] += i;
    long sum = 0, caught = 0;
    for (const auto &[word, count] : words) sum += count * static_cast<long>(word.size());
    for (int i = 0; i < 50; i++) {
        try { sink(i); } catch (const std::exception &) { caught++; }
    }
    std::smatch found;
    const std::string text = "abc123";
    bool matches = std::regex_match(text, found, std::regex("([a-z]+)([0-9]+)"));
    std::vector<long> sums(4);
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; t++) threads.emplace_back([&sums, t] { sums[t] = digits(t); });
    for (auto &thread : threads) thread.join();
    std::ostringstream stream;
    stream.precision(17);
    stream << 1.0 / 3 << " " << 2.5L << " " << std::hex << sum;
    std::cout << line << " " << caught << " " << matches << found[2] << " " << sums[1] + sums[3] << " " << stream.str() << "\n";
    return 7;
}
