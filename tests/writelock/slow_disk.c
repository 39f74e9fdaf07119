// A disk of one arm for the write-lock experiment: preloaded into the server, it makes reads of log
// files take turns of DISK_READ_MS each, once the server listens. The reads themselves are real.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t arm = PTHREAD_MUTEX_INITIALIZER;
static atomic_int listening;

int listen(int fd, int backlog) {
  int (*next)(int, int) = (int (*)(int, int))dlsym(RTLD_NEXT, "listen");
  atomic_store(&listening, 1);
  return next(fd, backlog);
}

static int is_log(int fd) {
  char link[64], path[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(link, path, sizeof path - 1);
  if (length < 0) return 0;
  path[length] = 0;
  const char *name = strrchr(path, '/');
  return name && strncmp(name, "/pmlog.", 7) == 0;
}

ssize_t pread64(int fd, void *into, size_t length, off64_t offset) {
  static ssize_t (*next)(int, void *, size_t, off64_t);
  if (!next) next = (ssize_t(*)(int, void *, size_t, off64_t))dlsym(RTLD_NEXT, "pread64");
  const char *ms = getenv("DISK_READ_MS");
  if (!ms || !atomic_load(&listening) || !is_log(fd)) return next(fd, into, length, offset);
  pthread_mutex_lock(&arm);
  struct timespec end;
  clock_gettime(CLOCK_MONOTONIC, &end);
  long long ns = end.tv_nsec + atoll(ms) * 1000000;
  end.tv_sec += ns / 1000000000;
  end.tv_nsec = ns % 1000000000;
  ssize_t result = next(fd, into, length, offset);
  int error = errno;
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, NULL) == EINTR) {
  }
  pthread_mutex_unlock(&arm);
  errno = error;
  return result;
}

ssize_t pread(int fd, void *into, size_t length, off_t offset) {
  return pread64(fd, into, length, offset);
}
