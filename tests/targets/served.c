// served FILE ARGS...: as user 65534, serves FILE from its own FUSE file system to all but tiptoe, and runs it from
// there.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { FILE_NODE = 2 };
static char request[1 << 20];
static int device, file;
static uint64_t size;

static void die(const char *what) { perror(what); exit(1); }

static void answer(uint64_t unique, int error, const void *body, size_t length) {
    struct fuse_out_header head = {.len = sizeof head + length, .error = -error, .unique = unique};
    struct iovec parts[] = {{&head, sizeof head}, {(void *)body, length}};
    if (writev(device, parts, 2) < 0 && errno != ENOENT) die("answer");
}

static int is_tiptoe(uint32_t thread) {
    char path[64], name[16] = "";
    snprintf(path, sizeof path, "/proc/%u/comm", thread);
    int comm = open(path, O_RDONLY);
    if (comm < 0) return 0;
    if (read(comm, name, sizeof name - 1) < 0) name[0] = 0;
    close(comm);
    return strncmp(name, "tiptoe", 6) == 0;
}

static struct fuse_attr attributes(uint64_t node) {
    int is_file = node == FILE_NODE;
    return (struct fuse_attr){.ino = node, .size = is_file ? size : 0, .mode = is_file ? S_IFREG | 0755 : S_IFDIR | 0755,
                              .nlink = 1, .blksize = 4096};
}

static void serve_read(uint64_t unique, const struct fuse_read_in *wanted) {
    static char bytes[1 << 20];
    size_t length = wanted->size < sizeof bytes ? wanted->size : sizeof bytes;
    ssize_t got = pread(file, bytes, length, (off_t)wanted->offset);
    answer(unique, got < 0 ? EIO : 0, bytes, got < 0 ? 0 : (size_t)got);
}

static void serve(const struct fuse_in_header *in, const void *body) {
    switch (in->opcode) {
    case FUSE_INIT: {
        const struct fuse_init_in *theirs = body;
        struct fuse_init_out ours = {.major = FUSE_KERNEL_VERSION, .minor = theirs->minor, .max_readahead = 4096,
                                     .max_write = 4096};
        return answer(in->unique, 0, &ours, sizeof ours);
    }
    case FUSE_LOOKUP: {
        struct fuse_entry_out entry = {.nodeid = FILE_NODE, .attr = attributes(FILE_NODE)};
        return strcmp(body, "served") ? answer(in->unique, ENOENT, 0, 0) : answer(in->unique, 0, &entry, sizeof entry);
    }
    case FUSE_GETATTR: {
        struct fuse_attr_out found = {.attr = attributes(in->nodeid)};
        return answer(in->unique, 0, &found, sizeof found);
    }
    case FUSE_OPEN: {
        struct fuse_open_out opened = {.fh = 1};
        return answer(in->unique, 0, &opened, sizeof opened);
    }
    case FUSE_READ: return serve_read(in->unique, body);
    case FUSE_FLUSH: case FUSE_RELEASE: return answer(in->unique, 0, 0, 0);
    case FUSE_FORGET: case FUSE_BATCH_FORGET: case FUSE_INTERRUPT: return;
    default: return answer(in->unique, ENOSYS, 0, 0);
    }
}

static void serve_all(void) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) {
        ssize_t length = read(device, request, sizeof request);
        if (length < 0 && errno == EINTR) continue;
        if (length < 0) exit(0);
        const struct fuse_in_header *in = (const void *)request;
        if (!is_tiptoe(in->pid)) serve(in, request + sizeof *in);
    }
}

int main(int argc, char **argv) {
    struct stat found;
    char options[128], folder[] = "/tmp/tiptoe-served-XXXXXX", path[64];
    if (argc < 2 || (file = open(argv[1], O_RDONLY)) < 0 || fstat(file, &found)) die("the file");
    size = (uint64_t)found.st_size;
    if ((device = open("/dev/fuse", O_RDWR)) < 0) die("/dev/fuse");
    if (unshare(CLONE_NEWNS) || mount("none", "/", 0, MS_REC | MS_PRIVATE, 0)) die("a mount namespace");
    if (mount("none", "/tmp", "tmpfs", 0, 0) || !mkdtemp(folder)) die("a folder");
    snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=65534,group_id=65534,allow_other", device);
    if (mount("served", folder, "fuse", 0, options)) die("mount");
    snprintf(path, sizeof path, "%s/served", folder);
    if (fork() == 0) serve_all();
    close(device);
    execv(path, argv + 1);
    die(path);
}
