// cflags: -O1 -g -std=c++20 -pthread
// cxx_locks: waits for locks in a namespace, a class, a function and a template.
#include <chrono>
#include <cstdio>
#include <mutex>
#include <thread>
using namespace std::chrono_literals;
namespace ns {
std::mutex m_ns;
struct C { static std::mutex m_cls; };
std::mutex C::m_cls;
std::mutex &fn() { static std::mutex m_fn; return m_fn; }
template <class X> struct T { static std::mutex m_t; };
template <class X> std::mutex T<X>::m_t;
static std::mutex m_static;
namespace { std::mutex m_anon; }
}
__attribute__((noinline)) void take(std::mutex &m) { m.lock(); asm volatile("" ::: "memory"); m.unlock(); }
int main() {
    std::mutex *all[] = {&ns::m_ns, &ns::C::m_cls, &ns::fn(), &ns::T<int>::m_t, &ns::m_static, &ns::m_anon};
    for (auto *m : all) for (int i = 0; i < 3; i++) { m->lock(); std::thread t([&] { take(*m); }); std::this_thread::sleep_for(10ms); m->unlock(); t.join(); }
    puts("ok");
}
