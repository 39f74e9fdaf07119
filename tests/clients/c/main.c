/*
 * Tests of the C client against a server.
 *
 *   tests URI TRANSPORT [--process]
 *
 * URI has options. TRANSPORT is what it has to come to: tcp, unix, sharedMemory, rdma. With --process the server
 * is a process on this host, and this program's to stop and, at the end, to kill. The last line is the
 * number of tests that passed.
 */
#include "tests.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

enum { SECONDS_MAX = 600 };

_Thread_local kauri_error_t error;
int tests_passed;
const char *server_uri;
kauri_transport_t server_transport;

const char *uri_with(const char *options) {
  static char uri[512];
  snprintf(uri, sizeof uri, "%.*s?%s", (int)strcspn(server_uri, "?"), server_uri, options);
  return uri;
}

kauri_connection_t *connected(void) {
  kauri_connection_t *connection;
  CHECK(kauri_connect(server_uri, 0, &connection, &error) == KAURI_OK);
  CHECK(kauri_get_transport(connection) == server_transport);
  CHECK(error.status == KAURI_OK && error.message[0] == 0);
  return connection;
}

doc_t command_new(const char *name, const char *collection) {
  doc_t doc = doc_new();
  if (collection == NULL)
    doc_int32(&doc, name, 1);
  else
    doc_string(&doc, name, collection);
  return doc;
}

kauri_bson_t command_end(doc_t *doc, const char *database) {
  doc_string(doc, "$db", database);
  return doc_end(doc);
}

kauri_bson_t run(kauri_connection_t *connection, doc_t *command, const char *database) {
  kauri_bson_t reply, whole = command_end(command, database);
  CHECK(kauri_command(connection, whole.data, whole.length, &reply, &error) == KAURI_OK);
  CHECK(number_at(reply, "ok") == 1);
  doc_free(command);
  return reply;
}

doc_t find_one(const char *collection, int32_t id) {
  doc_t find = command_new("find", collection);
  doc_open(&find, "filter", TYPE_DOCUMENT);
  doc_int32(&find, "_id", id);
  doc_close(&find);
  return find;
}

void drop(kauri_connection_t *connection, const char *collection) {
  doc_t command = command_new("drop", collection);
  run(connection, &command, "test");
}

void ping(kauri_connection_t *connection) {
  doc_t command = command_new("ping", NULL);
  run(connection, &command, "admin");
}

void close_connection(kauri_connection_t *connection) {
  CHECK(kauri_close(connection) == KAURI_OK);
}

int listening(const char *options, char uri[URI_BYTES]) {
  struct sockaddr_in address;
  socklen_t length = sizeof address;
  int listener = socket(AF_INET, SOCK_STREAM, 0);
  memset(&address, 0, sizeof address);
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  CHECK(bind(listener, (struct sockaddr *)&address, sizeof address) == 0 && listen(listener, 8) == 0);
  CHECK(getsockname(listener, (struct sockaddr *)&address, &length) == 0);
  snprintf(uri, URI_BYTES, "mongodb://127.0.0.1:%d/%s", ntohs(address.sin_port), options);
  return listener;
}

int main(int argc, char **argv) {
  if (argc < 3) {
    fprintf(stderr, "usage: tests URI TRANSPORT [--process]\n");
    return 2;
  }
  /* A call that never returns is a failure, and no other test's business. */
  alarm(SECONDS_MAX);
  server_uri = argv[1];
  for (kauri_transport_t one = KAURI_TRANSPORT_TCP; one <= KAURI_TRANSPORT_RDMA; one++)
    if (strcmp(kauri_transport_name(one), argv[2]) == 0)
      server_transport = one;
  arguments_tests();
  commands_tests();
  large_tests();
  lies_tests();
  if (argc > 3 && strcmp(argv[3], "--process") == 0)
    failures_tests();
  printf("%d\n", tests_passed);
  return 0;
}
