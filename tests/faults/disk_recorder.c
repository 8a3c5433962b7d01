/* Records what a process writes below one directory, and what it syncs, in order.
 *
 * Preloaded into a process under test. Each record is: operation (1 byte), length of the path (2),
 * offset (8), length of the data (4), path, data; numbers are little-endian. Operations: 'w' write,
 * 't' truncate (offset is the new size), 's' sync, 'u' unlink, 'r' rename (data is the new path).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int journal = -1;
static const char *below;

static void begin(void) {
    if (journal >= 0) return;
    const char *name = getenv("SESSIONARY_TEST_JOURNAL");
    below = getenv("SESSIONARY_TEST_BELOW");
    if (!name || !below) return;
    journal = syscall(SYS_openat, AT_FDCWD, name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

static int path_of(int fd, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, 4095);
    if (length < 0) return 0;
    path[length] = 0;
    return below && strncmp(path, below, strlen(below)) == 0;
}

static void put(const void *data, size_t length) {
    const char *at = data;
    while (length) {
        ssize_t done = syscall(SYS_write, journal, at, length);
        if (done <= 0) _exit(97);
        at += done;
        length -= done;
    }
}

static void note(char what, const char *path, uint64_t offset, const void *data, uint32_t length) {
    uint16_t size = strlen(path);
    char head[15];
    head[0] = what;
    memcpy(head + 1, &size, 2);
    memcpy(head + 3, &offset, 8);
    memcpy(head + 11, &length, 4);
    put(head, sizeof head);
    put(path, size);
    if (length) put(data, length);
}

/* While the file of this name is there, the disk fails to sync. */
static int is_failing(void) {
    const char *name = getenv("SESSIONARY_TEST_FAILING");
    return name && access(name, F_OK) == 0;
}

static int fails(int fd) {
    char path[4096];
    pthread_mutex_lock(&lock);
    begin();
    int mine = path_of(fd, path);
    pthread_mutex_unlock(&lock);
    if (!mine || !is_failing()) return 0;
    errno = EIO;
    return 1;
}

/* The real call and its record are one step, so that the journal's order is the disk's. */
#define RECORDED(call, condition, what, offset, data, length)                                     \
    char path[4096];                                                                              \
    pthread_mutex_lock(&lock);                                                                    \
    begin();                                                                                      \
    int mine = journal >= 0 && fd != journal && path_of(fd, path);                                \
    __typeof__(call) result = call;                                                               \
    if (mine && (condition)) note(what, path, offset, data, length);                              \
    pthread_mutex_unlock(&lock);                                                                  \
    return result;

ssize_t write(int fd, const void *data, size_t count) {
    static ssize_t (*real)(int, const void *, size_t);
    if (!real) real = dlsym(RTLD_NEXT, "write");
    off_t at = lseek(fd, 0, SEEK_CUR);
    RECORDED(real(fd, data, count), result > 0, 'w', at, data, result)
}

ssize_t pwrite(int fd, const void *data, size_t count, off_t at) {
    static ssize_t (*real)(int, const void *, size_t, off_t);
    if (!real) real = dlsym(RTLD_NEXT, "pwrite");
    RECORDED(real(fd, data, count, at), result > 0, 'w', at, data, result)
}

ssize_t pwrite64(int fd, const void *data, size_t count, off64_t at) {
    static ssize_t (*real)(int, const void *, size_t, off64_t);
    if (!real) real = dlsym(RTLD_NEXT, "pwrite64");
    RECORDED(real(fd, data, count, at), result > 0, 'w', at, data, result)
}

int ftruncate(int fd, off_t size) {
    static int (*real)(int, off_t);
    if (!real) real = dlsym(RTLD_NEXT, "ftruncate");
    RECORDED(real(fd, size), result == 0, 't', size, NULL, 0)
}

int ftruncate64(int fd, off64_t size) {
    static int (*real)(int, off64_t);
    if (!real) real = dlsym(RTLD_NEXT, "ftruncate64");
    RECORDED(real(fd, size), result == 0, 't', size, NULL, 0)
}

int fsync(int fd) {
    static int (*real)(int);
    if (!real) real = dlsym(RTLD_NEXT, "fsync");
    if (fails(fd)) return -1;
    RECORDED(real(fd), result == 0, 's', 0, NULL, 0)
}

int fdatasync(int fd) {
    static int (*real)(int);
    if (!real) real = dlsym(RTLD_NEXT, "fdatasync");
    if (fails(fd)) return -1;
    RECORDED(real(fd), result == 0, 's', 0, NULL, 0)
}

int unlink(const char *name) {
    static int (*real)(const char *);
    if (!real) real = dlsym(RTLD_NEXT, "unlink");
    pthread_mutex_lock(&lock);
    begin();
    int result = real(name);
    if (journal >= 0 && result == 0 && strncmp(name, below, strlen(below)) == 0)
        note('u', name, 0, NULL, 0);
    pthread_mutex_unlock(&lock);
    return result;
}

int rename(const char *from, const char *to) {
    static int (*real)(const char *, const char *);
    if (!real) real = dlsym(RTLD_NEXT, "rename");
    pthread_mutex_lock(&lock);
    begin();
    int result = real(from, to);
    if (journal >= 0 && result == 0 && strncmp(from, below, strlen(below)) == 0)
        note('r', from, 0, to, strlen(to));
    pthread_mutex_unlock(&lock);
    return result;
}
