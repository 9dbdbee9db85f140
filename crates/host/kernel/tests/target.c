/*
 * Runs the commands on standard input, one per line:
 * - main N: the main thread calls counted() N times
 * - worker N: an existing thread does so
 * - thread N: a new thread does so, then exits
 * - fork N: a forked child does so, then exits
 * - leave 0: the main thread exits, and another thread reads further commands
 *
 * Prints the address of counted(), then a line per command.
 */
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile long sink;
static long work;
static sem_t go, done;

__attribute__((noinline)) void counted(long n) { sink += n; }

static void call(long n) { while (n-- > 0) counted(n); }

static void *worker(void *unused) {
    for (;;) {
        sem_wait(&go);
        call(work);
        sem_post(&done);
    }
    return unused;
}

static void *once(void *n) {
    call((long)n);
    return 0;
}

static void *obey(void *unused) {
    char command[16];
    long n;
    pthread_t extra;
    while (scanf("%15s %ld", command, &n) == 2) {
        if (!strcmp(command, "main")) {
            call(n);
        } else if (!strcmp(command, "worker")) {
            work = n;
            sem_post(&go);
            sem_wait(&done);
        } else if (!strcmp(command, "thread")) {
            errno = pthread_create(&extra, 0, once, (void *)n);
            if (errno) perror("pthread_create"), exit(1);
            else pthread_join(extra, 0);
        } else if (!strcmp(command, "fork")) {
            pid_t child = fork();
            if (child < 0) perror("fork"), exit(1);
            if (child == 0) {
                call(n);
                _exit(0);
            }
            waitpid(child, 0, 0);
        }
        puts("done");
        if (!strcmp(command, "leave")) {
            pthread_create(&extra, 0, obey, 0);
            pthread_exit(0);
        }
    }
    exit(0);
    return unused;
}

int main(void) {
    pthread_t always;
    sem_init(&go, 0, 0);
    sem_init(&done, 0, 0);
    pthread_create(&always, 0, worker, 0);
    setvbuf(stdout, 0, _IONBF, 0);
    printf("%p\n", (void *)counted);
    obey(0);
}
