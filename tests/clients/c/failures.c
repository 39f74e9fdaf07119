/* Connections whose server is silent or gone, and a connection that two threads use at once. */
#include "tests.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

static pid_t server_process(void) {
  kauri_connection_t *c = connected();
  doc_t command = command_new("serverStatus", NULL);
  pid_t pid = (pid_t)number_at(run(c, &command, "admin"), "pid");
  CHECK(pid > 1);
  close_connection(c);
  return pid;
}

/* Whether every thread of it has stopped. */
static int has_stopped(pid_t process) {
  char path[300], line[200];
  int stopped = 1;
  struct dirent *thread;
  DIR *threads;
  snprintf(path, sizeof path, "/proc/%d/task", (int)process);
  threads = opendir(path);
  CHECK(threads != NULL);
  while ((thread = readdir(threads)) != NULL) {
    FILE *file;
    snprintf(path, sizeof path, "/proc/%d/task/%s/stat", (int)process, thread->d_name);
    if (thread->d_name[0] == '.' || (file = fopen(path, "r")) == NULL)
      continue;
    if (fgets(line, sizeof line, file) != NULL)
      stopped = stopped && strstr(line, ") T ") != NULL;
    fclose(file);
  }
  closedir(threads);
  return stopped;
}

static void stop(pid_t process) {
  CHECK(kill(process, SIGSTOP) == 0);
  while (!has_stopped(process))
    sched_yield();
}

static int64_t milliseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* A server that accepts and says nothing, ever. */
static void connecting_takes_no_longer_than_it_may(void) {
  char uri[URI_BYTES];
  int listener = listening("", uri);
  kauri_connection_t *connection;
  int64_t began = milliseconds();
  CHECK(kauri_connect(uri, 300, &connection, &error) == KAURI_TIMED_OUT && connection == NULL);
  CHECK(milliseconds() - began >= 300);
  strcat(uri, "?connectTimeoutMS=200");
  CHECK(kauri_connect(uri, 0, &connection, &error) == KAURI_TIMED_OUT);
  /* The argument counts for more. */
  began = milliseconds();
  CHECK(kauri_connect(uri, 400, &connection, &error) == KAURI_TIMED_OUT);
  CHECK(milliseconds() - began >= 400);
  close(listener);
}

/* Every call answers what the first failure was. */
static void stays_failed(kauri_connection_t *c) {
  kauri_error_t first = error;
  doc_t doc = command_new("ping", NULL);
  kauri_bson_t reply, whole = command_end(&doc, "admin");
  kauri_status_t answers[6];
  for (size_t call = 0; call < 6; call++) {
    memset(&error, 0x55, sizeof error);
    switch (call) {
    case 0: answers[call] = kauri_command(c, whole.data, whole.length, &reply, &error); break;
    case 1: answers[call] = kauri_send(c, whole.data, whole.length, NULL, 0, &error); break;
    case 2: answers[call] = kauri_receive(c, &reply, &error); break;
    case 3: answers[call] = kauri_check(c, &error); break;
    case 4: answers[call] = kauri_set_timeout(c, 10, &error); break;
    case 5: answers[call] = kauri_trim(c, &error); break;
    }
    CHECK(answers[call] == first.status && memcmp(&error, &first, sizeof first) == 0);
  }
  CHECK(kauri_get_transport(c) == server_transport);
  doc_free(&doc);
}

static void a_silent_server_is_waited_for_no_longer_than_it_may(void) {
  kauri_connection_t *c = connected(), *by_uri;
  doc_t doc = command_new("ping", NULL);
  kauri_bson_t reply, whole = command_end(&doc, "admin");
  pid_t server = server_process();
  int64_t began;
  char uri[512];
  snprintf(uri, sizeof uri, "%s&socketTimeoutMS=300", server_uri);
  while (kauri_connect(uri, 0, &by_uri, &error) != KAURI_OK)
    CHECK(error.status == KAURI_TIMED_OUT);
  CHECK(kauri_set_timeout(c, 300, &error) == KAURI_OK);
  stop(server);
  CHECK(kauri_command(by_uri, whole.data, whole.length, &reply, &error) == KAURI_TIMED_OUT);
  close_connection(by_uri);
  began = milliseconds();
  CHECK(kauri_command(c, whole.data, whole.length, &reply, &error) == KAURI_TIMED_OUT);
  CHECK(milliseconds() - began >= 300);
  CHECK(kill(server, SIGCONT) == 0);
  CHECK(strstr(error.message, "in time") != NULL && reply.data == NULL);
  stays_failed(c);
  close_connection(c);
  doc_free(&doc);
  c = connected();
  ping(c);
  close_connection(c);
}

static void interrupts(int signal) {
  (void)signal;
}

/* From now on a signal comes all the time, by which no system call is begun anew. */
static timer_t signals(void) {
  struct sigaction action;
  struct sigevent event;
  struct itimerspec often = {{0, 20000000}, {0, 20000000}};
  timer_t timer;
  memset(&action, 0, sizeof action);
  action.sa_handler = interrupts;
  CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
  memset(&event, 0, sizeof event);
  event.sigev_notify = SIGEV_SIGNAL;
  event.sigev_signo = SIGUSR1;
  CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
  CHECK(timer_settime(timer, 0, &often, NULL) == 0);
  return timer;
}

static void signals_neither_end_a_wait_nor_prolong_it(void) {
  kauri_connection_t *sends = connected(), *receives = connected(), *goes_on = connected();
  doc_t doc = command_new("ping", NULL), bulky = command_new("ping", NULL);
  kauri_bson_t reply, whole = command_end(&doc, "admin"), large;
  pid_t server = server_process();
  timer_t timer;
  int64_t began;
  char *text = malloc(1 << 20);
  memset(text, 'x', (1 << 20) - 1);
  text[(1 << 20) - 1] = 0;
  doc_string(&bulky, "comment", text);
  large = command_end(&bulky, "admin");
  CHECK(kauri_set_timeout(sends, 500, &error) == KAURI_OK);
  CHECK(kauri_set_timeout(receives, 500, &error) == KAURI_OK);
  stop(server);
  timer = signals();
  began = milliseconds();
  CHECK(kauri_command(receives, whole.data, whole.length, &reply, &error) == KAURI_TIMED_OUT);
  CHECK(milliseconds() - began >= 500);
  /* Until nothing more can be sent. */
  do
    began = milliseconds();
  while (kauri_send(sends, large.data, large.length, NULL, 0, &error) == KAURI_OK);
  CHECK(error.status == KAURI_TIMED_OUT && milliseconds() - began >= 500);
  CHECK(kill(server, SIGCONT) == 0);
  ping(goes_on);
  CHECK(timer_delete(timer) == 0);
  free(text);
  doc_free(&doc);
  doc_free(&bulky);
  close_connection(sends);
  close_connection(receives);
  close_connection(goes_on);
}

/* Waits for a reply that comes when the server goes on. */
static void *waits(void *connection) {
  kauri_bson_t reply;
  kauri_status_t status;
  do
    status = kauri_receive(connection, &reply, &error);
  while (status == KAURI_IN_USE);
  CHECK(status == KAURI_OK && number_at(reply, "ok") == 1);
  return NULL;
}

static void until_in_use(kauri_connection_t *c) {
  kauri_status_t status;
  while ((status = kauri_check(c, &error)) != KAURI_IN_USE) {
    CHECK(status == KAURI_OK);
    sched_yield();
  }
}

/* One connection waits as long as another takes to give up. */
static void a_reply_may_take_longer_than_connecting(void) {
  kauri_connection_t *patient, *impatient = connected();
  doc_t doc = command_new("ping", NULL);
  kauri_bson_t reply, whole = command_end(&doc, "admin");
  pid_t server = server_process();
  pthread_t thread;
  while (kauri_connect(server_uri, 1000, &patient, &error) != KAURI_OK)
    CHECK(error.status == KAURI_TIMED_OUT);
  CHECK(kauri_set_timeout(impatient, 1500, &error) == KAURI_OK);
  stop(server);
  CHECK(kauri_send(patient, whole.data, whole.length, NULL, 0, &error) == KAURI_OK);
  CHECK(pthread_create(&thread, NULL, waits, patient) == 0);
  until_in_use(patient);
  CHECK(kauri_command(impatient, whole.data, whole.length, &reply, &error) == KAURI_TIMED_OUT);
  CHECK(kill(server, SIGCONT) == 0);
  CHECK(pthread_join(thread, NULL) == 0);
  doc_free(&doc);
  close_connection(patient);
  close_connection(impatient);
}

static void two_threads_at_once_are_told(void) {
  kauri_connection_t *c = connected();
  doc_t doc = command_new("ping", NULL);
  kauri_bson_t reply, whole = command_end(&doc, "admin");
  pid_t server = server_process();
  pthread_t thread;
  stop(server);
  CHECK(kauri_send(c, whole.data, whole.length, NULL, 0, &error) == KAURI_OK);
  CHECK(pthread_create(&thread, NULL, waits, c) == 0);
  until_in_use(c);
  CHECK(error.status == KAURI_IN_USE && strstr(error.message, "another thread") != NULL);
  CHECK(kauri_command(c, whole.data, whole.length, &reply, &error) == KAURI_IN_USE);
  CHECK(kauri_close(c) == KAURI_IN_USE);
  CHECK(kauri_get_transport(c) == server_transport);
  CHECK(kill(server, SIGCONT) == 0);
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK(kauri_command(c, whole.data, whole.length, &reply, &error) == KAURI_OK);
  doc_free(&doc);
  close_connection(c);
}

/* The last one: the server is gone after it. */
static void a_server_that_is_killed_is_an_error_and_no_signal(void) {
  enum { REQUESTS = 20 };
  kauri_connection_t *busy = connected(), *idle = connected(), *none;
  doc_t doc = find_one("large", 1);
  kauri_bson_t reply, whole = command_end(&doc, "test");
  pid_t server = server_process();
  kauri_status_t status;
  int received = 0;
  for (int at = 0; at < REQUESTS; at++)
    CHECK(kauri_send(busy, whole.data, whole.length, NULL, 0, &error) == KAURI_OK);
  CHECK(kauri_receive(busy, &reply, &error) == KAURI_OK);
  CHECK(kill(server, SIGKILL) == 0);
  while ((status = kauri_receive(busy, &reply, &error)) == KAURI_OK)
    received++;
  CHECK(status == KAURI_IO && received < REQUESTS - 1 && error.message[0] != 0);
  stays_failed(busy);
  close_connection(busy);
  while (kauri_check(idle, &error) == KAURI_OK)
    sched_yield();
  CHECK(error.status == KAURI_IO && strstr(error.message, "ended") != NULL);
  CHECK(kauri_command(idle, whole.data, whole.length, &reply, &error) == KAURI_IO);
  stays_failed(idle);
  close_connection(idle);
  /* Its listening socket may outlive its sessions by a moment. */
  do
    CHECK(kauri_connect(server_uri, 0, &none, &error) == KAURI_IO && none == NULL);
  while (error.code != ECONNREFUSED);
  doc_free(&doc);
}

void failures_tests(void) {
  RUN(connecting_takes_no_longer_than_it_may);
  RUN(a_silent_server_is_waited_for_no_longer_than_it_may);
  RUN(signals_neither_end_a_wait_nor_prolong_it);
  RUN(a_reply_may_take_longer_than_connecting);
  RUN(two_threads_at_once_are_told);
  RUN(a_server_that_is_killed_is_an_error_and_no_signal);
}
