/*
 * Failing disks and jumping clocks for one process, by LD_PRELOAD.
 *
 * FAULTS_FOLDER   the folder of the triggers; a fault lasts as long as its file exists:
 *   fsync-fails     fsync and fdatasync below FAULTS_DATA return EIO
 *   sync-hangs      fdatasync, which syncs the log, does not return below FAULTS_DATA
 *   disk-full       writes and allocations below FAULTS_DATA return ENOSPC
 *   read-fails      reads of segments (*.log) below FAULTS_DATA return EIO
 *   clock           holds a number: CLOCK_REALTIME is shifted by so many seconds
 *   injected        gets a line for every failure returned, and for every change of the shift
 * FAULTS_DATA     the log directory, an absolute path; other files are left alone
 *
 * `quorum-state` on a full disk: bytes that are in the file already are overwritten, as a file
 * system that writes in place does; that is what the file's reserve is for. Other files are refused
 * all writes, also where they are allocated, as by a file system that copies on write.
 *
 * A thread that waits for an absolute real time asks the kernel, whose clock is not shifted: the
 * shift is taken off again in the calls that wait so.
 */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define CLOCK_POLL_NS 20000000L
#define NANOS 1000000000L

static const char *folder, *data;
static char sync_hangs[PATH_MAX], fsync_fails[PATH_MAX], read_fails[PATH_MAX];
static char disk_full[PATH_MAX], clock_file[PATH_MAX], injected[PATH_MAX];
static atomic_long shift_s, clock_polled_ns;

#define REAL(name)                                              \
    static typeof(name) *real;                                  \
    if (!real) real = (typeof(name) *)dlsym(RTLD_NEXT, #name)

__attribute__((constructor)) static void begin(void)
{
    const char *where = getenv("FAULTS_FOLDER");
    data = getenv("FAULTS_DATA");
    if (!where || !data) return;
    snprintf(sync_hangs, PATH_MAX, "%s/sync-hangs", where);
    snprintf(fsync_fails, PATH_MAX, "%s/fsync-fails", where);
    snprintf(read_fails, PATH_MAX, "%s/read-fails", where);
    snprintf(disk_full, PATH_MAX, "%s/disk-full", where);
    snprintf(clock_file, PATH_MAX, "%s/clock", where);
    snprintf(injected, PATH_MAX, "%s/injected", where);
    folder = where;
}

/* Straight to the kernel: the functions of this file are not to meet themselves. */
static void note(const char *what, const char *of)
{
    char line[PATH_MAX + 64];
    int kept = errno;
    int size = snprintf(line, sizeof line, "%s %s\n", what, of);
    int fd = openat(AT_FDCWD, injected, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (fd >= 0) {
        if (size > (int)sizeof line) size = sizeof line;
        syscall(SYS_write, fd, line, size);
        close(fd);
    }
    errno = kept;
}

static int is_on(const char *trigger)
{
    int kept = errno;
    int found = folder && access(trigger, F_OK) == 0;
    errno = kept;
    return found;
}

/* The path of a descriptor, if it is below FAULTS_DATA. */
static int is_data(int fd, char *path)
{
    char name[64];
    int kept = errno;
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(name, path, PATH_MAX - 1);
    errno = kept;
    if (size < 0) return 0;
    path[size] = 0;
    return strncmp(path, data, strlen(data)) == 0;
}

static int refuse(int error, const char *what, const char *path)
{
    note(what, path);
    errno = error;
    return -1;
}

/* --- the disk ----------------------------------------------------------------------------------*/

static int sync_fails(int fd, const char *what)
{
    char path[PATH_MAX];
    return is_on(fsync_fails) && is_data(fd, path) ? refuse(EIO, what, path) : 0;
}

static int no_space(int fd, const char *what, off_t end)
{
    char path[PATH_MAX];
    struct stat found;
    if (!is_on(disk_full) || !is_data(fd, path)) return 0;
    const char *name = strrchr(path, '/');
    if (name && !strncmp(name, "/quorum-state", 13) && end >= 0 && !fstat(fd, &found) &&
        end <= found.st_blocks * 512)
        return 0;
    return refuse(ENOSPC, what, path);
}

static off_t end_of(const struct iovec *vector, int count, off_t offset)
{
    for (int i = 0; i < count; i++) offset += vector[i].iov_len;
    return offset;
}

int fsync(int fd)
{
    REAL(fsync);
    return sync_fails(fd, "fsync") ? -1 : real(fd);
}

int fdatasync(int fd)
{
    REAL(fdatasync);
    char path[PATH_MAX];
    if (is_on(sync_hangs) && is_data(fd, path)) {
        note("hangs", path);
        while (is_on(sync_hangs)) usleep(10000);
    }
    return sync_fails(fd, "fdatasync") ? -1 : real(fd);
}

ssize_t write(int fd, const void *bytes, size_t size)
{
    REAL(write);
    return no_space(fd, "write", -1) ? -1 : real(fd, bytes, size);
}

ssize_t writev(int fd, const struct iovec *vector, int count)
{
    REAL(writev);
    return no_space(fd, "writev", -1) ? -1 : real(fd, vector, count);
}

#define PWRITE(name)                                                        \
    ssize_t name(int fd, const void *bytes, size_t size, off_t offset)      \
    {                                                                       \
        REAL(name);                                                         \
        off_t end = offset + (off_t)size;                                   \
        return no_space(fd, #name, end) ? -1 : real(fd, bytes, size, offset); \
    }
PWRITE(pwrite)
PWRITE(pwrite64)

#define PWRITEV(name)                                                            \
    ssize_t name(int fd, const struct iovec *vector, int count, off_t offset)    \
    {                                                                            \
        REAL(name);                                                              \
        off_t end = end_of(vector, count, offset);                               \
        return no_space(fd, #name, end) ? -1 : real(fd, vector, count, offset);  \
    }
PWRITEV(pwritev)
PWRITEV(pwritev64)

#define PWRITEV2(name)                                                                       \
    ssize_t name(int fd, const struct iovec *vector, int count, off_t offset, int flags)     \
    {                                                                                        \
        REAL(name);                                                                          \
        off_t end = end_of(vector, count, offset);                                           \
        return no_space(fd, #name, end) ? -1 : real(fd, vector, count, offset, flags);       \
    }
PWRITEV2(pwritev2)
PWRITEV2(pwritev64v2)

/* These return the error's number. */
#define ALLOCATE(name)                                                          \
    int name(int fd, off_t offset, off_t length)                                \
    {                                                                           \
        REAL(name);                                                             \
        return no_space(fd, #name, -1) ? ENOSPC : real(fd, offset, length);     \
    }
ALLOCATE(posix_fallocate)
ALLOCATE(posix_fallocate64)

static int fails_to_read(int fd, const char *what)
{
    char path[PATH_MAX];
    if (!is_on(read_fails) || !is_data(fd, path)) return 0;
    size_t size = strlen(path);
    return size > 4 && !strcmp(path + size - 4, ".log") ? refuse(EIO, what, path) : 0;
}

ssize_t read(int fd, void *bytes, size_t size)
{
    REAL(read);
    return fails_to_read(fd, "read") ? -1 : real(fd, bytes, size);
}

#define PREAD(name)                                                              \
    ssize_t name(int fd, void *bytes, size_t size, off_t offset)                 \
    {                                                                            \
        REAL(name);                                                              \
        return fails_to_read(fd, "read") ? -1 : real(fd, bytes, size, offset);   \
    }
PREAD(pread)
PREAD(pread64)

#define PREADV(name)                                                             \
    ssize_t name(int fd, const struct iovec *vector, int count, off_t offset)    \
    {                                                                            \
        REAL(name);                                                              \
        return fails_to_read(fd, "read") ? -1 : real(fd, vector, count, offset); \
    }
PREADV(preadv)
PREADV(preadv64)

#define PREADV2(name)                                                                    \
    ssize_t name(int fd, const struct iovec *vector, int count, off_t offset, int flags) \
    {                                                                                    \
        REAL(name);                                                                      \
        return fails_to_read(fd, "read") ? -1 : real(fd, vector, count, offset, flags);  \
    }
PREADV2(preadv2)
PREADV2(preadv64v2)

/* --- the clock ---------------------------------------------------------------------------------*/

static int real_time(clockid_t clock, struct timespec *now)
{
    REAL(clock_gettime);
    return real(clock, now);
}

/* The shift in seconds; the file is looked at every CLOCK_POLL_NS, by one thread. */
static long shift(void)
{
    struct timespec now;
    if (!folder) return 0;
    real_time(CLOCK_MONOTONIC, &now);
    long at = now.tv_sec * NANOS + now.tv_nsec, last = atomic_load(&clock_polled_ns);
    if (at - last < CLOCK_POLL_NS || !atomic_compare_exchange_strong(&clock_polled_ns, &last, at))
        return atomic_load(&shift_s);
    char text[32] = "0";
    int kept = errno;
    int fd = openat(AT_FDCWD, clock_file, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        ssize_t size = read(fd, text, sizeof text - 1);
        text[size > 0 ? size : 0] = 0;
        close(fd);
    }
    errno = kept;
    long wanted = atol(text);
    if (atomic_exchange(&shift_s, wanted) != wanted) {
        snprintf(text, sizeof text, "%ld", wanted);
        note("clock", text);
    }
    return wanted;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int result = real_time(clock, now);
    if (!result && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec += shift();
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    struct timespec at;
    real_time(CLOCK_REALTIME, &at);
    (void)zone;
    now->tv_sec = at.tv_sec + shift();
    now->tv_usec = at.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *result)
{
    struct timespec at;
    real_time(CLOCK_REALTIME, &at);
    at.tv_sec += shift();
    if (result) *result = at.tv_sec;
    return at.tv_sec;
}

int sem_timedwait(sem_t *restrict semaphore, const struct timespec *restrict until)
{
    REAL(sem_timedwait);
    struct timespec at = *until;
    at.tv_sec -= shift();
    return real(semaphore, &at);
}

int pthread_mutex_timedlock(pthread_mutex_t *restrict mutex, const struct timespec *restrict until)
{
    REAL(pthread_mutex_timedlock);
    struct timespec at = *until;
    at.tv_sec -= shift();
    return real(mutex, &at);
}

long syscall(long number, ...)
{
    REAL(syscall);
    long given[6];
    va_list list;
    va_start(list, number);
    for (int i = 0; i < 6; i++) given[i] = va_arg(list, long);
    va_end(list);
    struct timespec at;
    if (number == SYS_futex && (given[1] & FUTEX_CLOCK_REALTIME) && given[3] && shift()) {
        at = *(const struct timespec *)given[3];
        at.tv_sec -= shift();
        given[3] = (long)&at;
    }
    return real(number, given[0], given[1], given[2], given[3], given[4], given[5]);
}
