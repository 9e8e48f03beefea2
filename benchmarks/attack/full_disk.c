/* A disk that is full from a given write on, or for one write: preloaded, and told by full_disk_after(n) or
   full_disk_once(n). Only regular files count. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static long left = -1; /* writes until the disk is full; -1: it never is */
static long failed = 0;
static int once = 0; /* someone makes room after the first failure */

void full_disk_after(long writes) { once = 0; failed = 0; left = writes; }
void full_disk_once(long writes) { once = 1; failed = 0; left = writes; }
long full_disk_failed(void) { return failed; }

static int is_full(void) {
    if (left < 0) return 0;
    if (__atomic_load_n(&left, __ATOMIC_SEQ_CST) == 0 || __atomic_sub_fetch(&left, 1, __ATOMIC_SEQ_CST) < 0) {
        left = once ? -1 : 0;
        __atomic_add_fetch(&failed, 1, __ATOMIC_SEQ_CST);
        errno = ENOSPC;
        return 1;
    }
    return 0;
}

static int is_file(int fd) {
    struct stat found;
    return left >= 0 && fd > 2 && fstat(fd, &found) == 0 && S_ISREG(found.st_mode);
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t write(int fd, const void *data, size_t size) {
    return is_file(fd) && is_full() ? -1 : REAL(write)(fd, data, size);
}
ssize_t pwrite(int fd, const void *data, size_t size, off_t at) {
    return is_file(fd) && is_full() ? -1 : REAL(pwrite)(fd, data, size, at);
}
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) {
    return is_file(fd) && is_full() ? -1 : REAL(pwrite64)(fd, data, size, at);
}
ssize_t writev(int fd, const struct iovec *data, int count) {
    return is_file(fd) && is_full() ? -1 : REAL(writev)(fd, data, count);
}
int fsync(int fd) { return is_file(fd) && is_full() ? -1 : REAL(fsync)(fd); }
int mkdir(const char *path, mode_t mode) { return left >= 0 && access(path, F_OK) != 0 && is_full() ? -1 : REAL(mkdir)(path, mode); }

/* A new file needs an inode. */
#define OPEN(name)                                                            \
    int name(const char *path, int flags, ...) {                             \
        mode_t mode = 0;                                                      \
        if (flags & (O_CREAT | __O_TMPFILE)) {                                \
            va_list rest;                                                     \
            va_start(rest, flags);                                            \
            mode = va_arg(rest, mode_t);                                      \
            va_end(rest);                                                     \
            if (left >= 0 && access(path, F_OK) != 0 && is_full()) return -1; \
        }                                                                     \
        return REAL(name)(path, flags, mode);                                 \
    }
OPEN(open)
OPEN(open64)
