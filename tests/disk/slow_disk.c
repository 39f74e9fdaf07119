// A slow disk for experiments. Preloaded, it delays reads and syncs of files under a directory, as a disk with one arm
// does. All I/O is real and only takes longer.
//
//   SLOW_DISK_DIR          files below it are delayed
//   SLOW_DISK_READ_US      duration of a read; reads are served one at a time
//   SLOW_DISK_SYNC_US      duration of a sync, served one at a time with the reads
//   SLOW_DISK_MB_S         adds the time of the bytes at this rate to both; 0 for no such limit
//   SLOW_DISK_FROM_LISTEN  if set, delays begin when the process listens on a socket
//   SLOW_DISK_UNCACHED_DIR the page cache of files below it is dropped after each read, so that every
//                          read goes to the device
//
// Writes go to the page cache without delay; the next sync of their file takes the time. While a file `fast` exists in
// SLOW_DISK_DIR nothing is delayed (for loading).
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { UNKNOWN, OTHER, SLOW, UNCACHED };
#define FDS 65536

static _Atomic unsigned char kinds[FDS];
static _Atomic long long unsynced[FDS];
static pthread_mutex_t arm = PTHREAD_MUTEX_INITIALIZER;
static atomic_int listening;

static char slow_dir[PATH_MAX], fast_file[PATH_MAX + 8], uncached_dir[PATH_MAX];
static long long read_ns, sync_ns, mb_s;
static int from_listen;

static long long number(const char *name) {
  const char *text = getenv(name);
  return text ? atoll(text) : 0;
}

static void directory(const char *name, char *into) {
  const char *text = getenv(name);
  if (!text || !realpath(text, into)) into[0] = 0;
}

__attribute__((constructor)) static void begin(void) {
  directory("SLOW_DISK_DIR", slow_dir);
  directory("SLOW_DISK_UNCACHED_DIR", uncached_dir);
  snprintf(fast_file, sizeof fast_file, "%s/fast", slow_dir);
  read_ns = number("SLOW_DISK_READ_US") * 1000;
  sync_ns = number("SLOW_DISK_SYNC_US") * 1000;
  mb_s = number("SLOW_DISK_MB_S");
  from_listen = getenv("SLOW_DISK_FROM_LISTEN") != NULL;
}

#define NEXT(name) \
  static __typeof__(&name) next; \
  if (!next) next = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

static int is_below(const char *path, const char *directory) {
  size_t length = strlen(directory);
  return length && strncmp(path, directory, length) == 0 && path[length] == '/';
}

static int kind_of(int fd) {
  if (fd < 0 || fd >= FDS) return OTHER;
  int kind = atomic_load_explicit(&kinds[fd], memory_order_relaxed);
  if (kind != UNKNOWN) return kind;
  char link[64], path[PATH_MAX];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  int error = errno;
  ssize_t length = readlink(link, path, sizeof path - 1);
  errno = error;
  if (length < 0) return OTHER;
  path[length] = 0;
  kind = is_below(path, slow_dir) ? SLOW : is_below(path, uncached_dir) ? UNCACHED : OTHER;
  atomic_store(&unsynced[fd], 0);
  atomic_store(&kinds[fd], kind);
  return kind;
}

static int is_slow(int fd) {
  if (kind_of(fd) != SLOW || (from_listen && !atomic_load(&listening))) return 0;
  int error = errno;
  int fast = access(fast_file, F_OK) == 0;
  errno = error;
  return !fast;
}

static struct timespec begin_turn(void) {
  struct timespec began;
  pthread_mutex_lock(&arm);
  clock_gettime(CLOCK_MONOTONIC, &began);
  return began;
}

static void end_turn(struct timespec end, long long ns, long long bytes) {
  int error = errno;
  if (mb_s > 0) ns += bytes * 1000 / mb_s;
  ns += end.tv_nsec;
  end.tv_sec += ns / 1000000000;
  end.tv_nsec = ns % 1000000000;
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, NULL) == EINTR) {
  }
  pthread_mutex_unlock(&arm);
  errno = error;
}

static void forget(int fd, off_t offset, ssize_t length) {
  int error = errno;
  off_t end = (offset + length + 4095) & ~(off_t)4095;
  offset &= ~(off_t)4095;
  posix_fadvise(fd, offset, end - offset, POSIX_FADV_DONTNEED);
  errno = error;
}

static void wrote(int fd, ssize_t length) {
  if (length > 0 && kind_of(fd) == SLOW) atomic_fetch_add(&unsynced[fd], length);
}

#define READ(call) \
  if (is_slow(fd)) { \
    struct timespec began = begin_turn(); \
    ssize_t result = call; \
    end_turn(began, read_ns, result > 0 ? result : 0); \
    return result; \
  } \
  ssize_t result = call; \
  if (kind_of(fd) == UNCACHED && result > 0) forget(fd, offset, result); \
  return result

ssize_t pread64(int fd, void *into, size_t length, off64_t offset) {
  NEXT(pread64);
  READ(next(fd, into, length, offset));
}

ssize_t pread(int fd, void *into, size_t length, off_t offset) {
  return pread64(fd, into, length, offset);
}

ssize_t preadv64(int fd, const struct iovec *parts, int count, off64_t offset) {
  NEXT(preadv64);
  READ(next(fd, parts, count, offset));
}

ssize_t preadv(int fd, const struct iovec *parts, int count, off_t offset) {
  return preadv64(fd, parts, count, offset);
}

// A read that must not wait finds nothing in memory on such a disk.
ssize_t preadv64v2(int fd, const struct iovec *parts, int count, off64_t offset, int flags) {
  NEXT(preadv64v2);
  if ((flags & RWF_NOWAIT) && is_slow(fd)) {
    errno = EAGAIN;
    return -1;
  }
  READ(next(fd, parts, count, offset, flags));
}

ssize_t preadv2(int fd, const struct iovec *parts, int count, off_t offset, int flags) {
  return preadv64v2(fd, parts, count, offset, flags);
}

ssize_t pwrite64(int fd, const void *from, size_t length, off64_t offset) {
  NEXT(pwrite64);
  ssize_t result = next(fd, from, length, offset);
  wrote(fd, result);
  return result;
}

ssize_t pwrite(int fd, const void *from, size_t length, off_t offset) {
  return pwrite64(fd, from, length, offset);
}

ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t offset) {
  NEXT(pwritev64);
  ssize_t result = next(fd, parts, count, offset);
  wrote(fd, result);
  return result;
}

ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t offset) {
  return pwritev64(fd, parts, count, offset);
}

ssize_t write(int fd, const void *from, size_t length) {
  NEXT(write);
  ssize_t result = next(fd, from, length);
  if (fd > 2) wrote(fd, result);
  return result;
}

static int slow_sync(int fd, int (*sync)(int)) {
  if (!is_slow(fd)) {
    if (kind_of(fd) == SLOW) atomic_store(&unsynced[fd], 0);
    return sync(fd);
  }
  struct timespec began = begin_turn();
  long long bytes = atomic_exchange(&unsynced[fd], 0);
  int result = sync(fd);
  end_turn(began, sync_ns, bytes);
  return result;
}

int fdatasync(int fd) {
  NEXT(fdatasync);
  return slow_sync(fd, next);
}

int fsync(int fd) {
  NEXT(fsync);
  return slow_sync(fd, next);
}

int close(int fd) {
  NEXT(close);
  if (fd >= 0 && fd < FDS) atomic_store(&kinds[fd], UNKNOWN);
  return next(fd);
}

int listen(int fd, int backlog) {
  NEXT(listen);
  atomic_store(&listening, 1);
  return next(fd, backlog);
}
