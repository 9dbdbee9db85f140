// cflags: -O2 -pthread ret_switch.S
// ret_coro MODE [wait]: probed frames on stacks that are switched, by swapcontext or by hand. MODE: travels (each step
// on another thread), copied (one stack, saved to the heap and put back, as greenlet does), nested, linked (each ends
// by a return), abandoned (its stack is reused), and others.
#include "ret_common.h"
#include <pthread.h>
#include <sys/mman.h>
#include <ucontext.h>

enum { TASKS = 10, STEPS = 100, STACK = 65536 };
CALLS(body); CALLS(step); CALLS(leaf); CALLS(yields); CALLS(resumes); CALLS(inner_body); CALLS(linked_body);
void coro_switch(void **save, void *load);

struct task {
    ucontext_t context, back;
    void *sp, *back_sp, *saved;
    char *stack;
    size_t saved_size;
    int id, done, depth;
    uint64_t sum;
    struct task *inner;
};
static struct task tasks[TASKS], inner_tasks[TASKS];
// A task may change its thread and must not keep an address in the old thread's storage. So the variable is not
// thread-local.
static struct task *volatile current;
static void (*suspend)(struct task *), (*resume)(struct task *);

PROBED int leaf(int x) { ENTER(leaf); KEEP(); LEAVE(leaf); return x + 1; }

PROBED void yields(int x) {
    ENTER(yields);
    CHECK(leaf(x) == x + 1);
    suspend(current);
    CHECK(leaf(x) == x + 1);
    LEAVE(yields);
}

// Yields at several depths, so that frames of many tasks are live at once.
PROBED uint64_t step(int id, int i, int depth) {
    ENTER(step);
    uint64_t sum = (uint64_t)(id * i);
    if (depth) sum += step(id, i, depth - 1);
    else yields(id);
    __asm__ volatile("" : "+r"(sum));
    LEAVE(step);
    return sum + 1;
}

PROBED void resumes(struct task *task) {
    ENTER(resumes);
    resume(task);
    LEAVE(resumes);
}

PROBED void body(struct task *task) {
    ENTER(body);
    for (int i = 0; i < STEPS; i++) task->sum += step(task->id, i, (task->id + i) % 5);
    LEAVE(body);
}

static void resume_context(struct task *task);
PROBED void inner_body(struct task *task) {
    ENTER(inner_body);
    for (int i = 0; i < STEPS; i++) {
        struct task *self = current;
        if (self->inner && !self->inner->done) resumes(self->inner);
        current = self;
        task->sum += step(task->id, i, i % 3);
    }
    while (task->inner && !task->inner->done) resumes(task->inner);
    current = task;
    LEAVE(inner_body);
}

static void (*run_body)(struct task *) = body;

static void entry(void) {
    struct task *self = current;
    run_body(self);
    self->done = 1;
    for (;;) suspend(self);
}

static void suspend_context(struct task *task) { CHECK(swapcontext(&task->context, &task->back) == 0); }
static void resume_context(struct task *task) {
    current = task;
    CHECK(swapcontext(&task->back, &task->context) == 0);
}
static void suspend_switch(struct task *task) { coro_switch(&task->sp, task->back_sp); }
static void resume_switch(struct task *task) {
    current = task;
    coro_switch(&task->back_sp, task->sp);
}

static char *shared;
static void resume_copied(struct task *task) {
    memcpy(shared + STACK - task->saved_size, task->saved, task->saved_size);
    resume_switch(task);
    free(task->saved);
    task->saved_size = (size_t)(shared + STACK - (char *)task->sp);
    task->saved = malloc(task->saved_size);
    CHECK(task->saved);
    memcpy(task->saved, task->sp, task->saved_size);
}

static char *mapped(void) {
    char *stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(stack != MAP_FAILED);
    return stack;
}

static void make_context(struct task *task, char *stack) {
    CHECK(getcontext(&task->context) == 0);
    task->stack = stack;
    task->context.uc_stack.ss_sp = stack;
    task->context.uc_stack.ss_size = STACK;
    makecontext(&task->context, entry, 0);
}
// The stack looks like a call of `entry`: six registers, its address, and an unused return address.
static void make_switch(struct task *task, char *stack) {
    void **top = (void **)(stack + STACK) - 3;
    task->stack = stack;
    memset(top - 7, 0, 7 * sizeof *top);
    top[-1] = (void *)entry;
    top[0] = NULL;
    task->sp = top - 7;
}
static void make_copied(struct task *task, char *stack) {
    make_switch(task, stack);
    task->saved_size = (size_t)(stack + STACK - (char *)task->sp);
    task->saved = malloc(task->saved_size);
    CHECK(task->saved);
    memcpy(task->saved, task->sp, task->saved_size);
}

static int living(void) {
    int left = 0;
    for (int i = 0; i < TASKS; i++) left += !tasks[i].done;
    return left;
}
static void round_robin(void) {
    for (int turn = 0; living(); turn++)
        for (int i = 0; i < TASKS; i++) {
            // The order alternates stacks above and below.
            struct task *task = &tasks[(i * 7 + turn) % TASKS];
            if (!task->done) resumes(task);
            CHECK(leaf(i) == i + 1);
        }
}

static void by_context(char *(*new_stack)(void)) {
    suspend = suspend_context;
    resume = resume_context;
    for (int i = 0; i < TASKS; i++) make_context(&tasks[i], new_stack());
    round_robin();
}
static void by_switch(void) {
    suspend = suspend_switch;
    resume = resume_switch;
    for (int i = 0; i < TASKS; i++) make_switch(&tasks[i], mapped());
}
static char *allocated(void) { char *stack = malloc(STACK); CHECK(stack); return stack; }

static void mode_mapped(void) { by_context(mapped); }
static void mode_heap(void) {
    by_context(allocated);
    for (int i = 0; i < TASKS; i++) free(tasks[i].stack);
}
static void mode_switched(void) { by_switch(); round_robin(); }
static void mode_copied(void) {
    suspend = suspend_switch;
    resume = resume_copied;
    shared = mapped();
    for (int i = 0; i < TASKS; i++) make_copied(&tasks[i], shared);
    round_robin();
}
static void mode_nested(void) {
    run_body = inner_body;
    suspend = suspend_context;
    resume = resume_context;
    for (int i = 0; i < TASKS; i++) {
        tasks[i].inner = &inner_tasks[i];
        make_context(&tasks[i], mapped());
        make_context(&inner_tasks[i], mapped());
        inner_tasks[i].id = i + 100;
    }
    round_robin();
}

static ucontext_t home;
PROBED void linked_body(int id, int more) {
    ENTER(linked_body);
    tasks[id].sum += (uint64_t)more;
    CHECK(leaf(id) == id + 1);
    LEAVE(linked_body);
}
static void mode_linked(void) {
    for (int i = 0; i < TASKS * STEPS; i++) {
        struct task *task = &tasks[i % TASKS];
        if (!task->stack) task->stack = mapped();
        make_context(task, task->stack);
        task->context.uc_link = &home;
        makecontext(&task->context, (void (*)(void))linked_body, 2, i % TASKS, i);
        CHECK(swapcontext(&home, &task->context) == 0);
    }
}

enum { THREADS = 3 };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t passed = PTHREAD_COND_INITIALIZER;
static int turn;
static void *rider(void *seat) {
    int mine = (int)(intptr_t)seat;
    CHECK(pthread_mutex_lock(&lock) == 0);
    while (living()) {
        while (turn % THREADS != mine && living()) CHECK(pthread_cond_wait(&passed, &lock) == 0);
        if (!living()) break;
        for (int i = 0; i < TASKS; i++)
            if (!tasks[i].done) resumes(&tasks[i]);
        turn++;
        CHECK(pthread_cond_broadcast(&passed) == 0);
    }
    CHECK(pthread_mutex_unlock(&lock) == 0);
    return NULL;
}
static void mode_travels(void) {
    pthread_t ids[THREADS];
    by_switch();
    for (int i = 0; i < THREADS; i++) CHECK(pthread_create(&ids[i], NULL, rider, (void *)(intptr_t)i) == 0);
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(ids[i], NULL) == 0);
}

// New tasks reuse the stacks, so that the old frames on them never end.
static void mode_abandoned(void) {
    by_switch();
    for (int i = 0; i < 20 * TASKS; i++) resumes(&tasks[i % TASKS]);
    for (int i = 0; i < TASKS; i++) make_switch(&tasks[i], tasks[i].stack);
    round_robin();
}

static const struct mode modes[] = {
    {"mapped", mode_mapped}, {"heap", mode_heap}, {"switched", mode_switched}, {"travels", mode_travels},
    {"copied", mode_copied}, {"nested", mode_nested}, {"linked", mode_linked}, {"abandoned", mode_abandoned},
};

int main(int argc, char **argv) {
    uint64_t sum = 0;
    for (int i = 0; i < TASKS; i++) tasks[i].id = i;
    int status = RUN(modes, argc, argv);
    if (status) return status;
    for (int i = 0; i < TASKS; i++) sum += tasks[i].sum * (uint64_t)(i + 1) + inner_tasks[i].sum;
    printf("sum %llu\n", (unsigned long long)sum);
    TELL_UNFINISHED(body); TELL_UNFINISHED(step); TELL_UNFINISHED(yields);
    TELL(leaf); TELL(resumes); TELL(inner_body); TELL(linked_body);
    return 0;
}
