/* Every argument is validated, and a rejected call leaves the connection unchanged. */
#include "tests.h"

#include <errno.h>

/* {ping: 1, $db: "admin"}; the literal ends in the final zero. */
static const uint8_t PING[] = "\x1e\0\0\0\x10ping\0\1\0\0\0\2$db\0\6\0\0\0admin\0";
enum { PING_BYTES = sizeof PING };

static void names_are_the_headers(void) {
  static const char *const STATUSES[] = {
      "ok",        "invalid argument", "invalid connection string", "unavailable",
      "connection failed", "timed out", "protocol broken", "command failed",
      "in use",    "out of order",     "internal error"};
  static const kauri_status_t NUMBERS[] = {
      KAURI_OK, KAURI_INVALID_ARGUMENT, KAURI_INVALID_URI, KAURI_UNAVAILABLE,
      KAURI_IO, KAURI_TIMED_OUT, KAURI_PROTOCOL, KAURI_COMMAND,
      KAURI_IN_USE, KAURI_OUT_OF_ORDER, KAURI_INTERNAL};
  static const char *const TRANSPORTS[] = {"tcp", "unix", "sharedMemory", "rdma"};
  for (size_t at = 0; at < sizeof NUMBERS / sizeof *NUMBERS; at++)
    CHECK(strcmp(kauri_status_name(NUMBERS[at]), STATUSES[at]) == 0);
  CHECK(kauri_status_name(-1) == NULL && kauri_status_name(KAURI_INTERNAL + 1) == NULL);
  for (kauri_transport_t at = 0; at < 4; at++)
    CHECK(strcmp(kauri_transport_name(KAURI_TRANSPORT_TCP + at), TRANSPORTS[at]) == 0);
  CHECK(kauri_transport_name(0) == NULL && kauri_transport_name(KAURI_TRANSPORT_RDMA + 1) == NULL);
  CHECK(strcmp(kauri_version(), KAURI_VERSION) == 0);
}

static void refused(kauri_status_t status, const char *words) {
  CHECK(status == KAURI_INVALID_ARGUMENT);
  CHECK(error.status == KAURI_INVALID_ARGUMENT && error.code == 0 && error.code_name[0] == 0);
  CHECK(strstr(error.message, words) != NULL);
}

static void each_null_argument_is_refused(void) {
  kauri_connection_t *c = connected(), *none = NULL;
  kauri_bson_t reply, nothing = {NULL, 5};
  kauri_sequence_t nameless = {NULL, NULL, 0}, empty = {"documents", NULL, 1}, lost;
  lost.name = "documents", lost.documents = &nothing, lost.count = 1;
  refused(kauri_connect(NULL, 0, &none, &error), "uri is NULL");
  refused(kauri_connect(server_uri, 0, NULL, &error), "connection is NULL");
  refused(kauri_set_timeout(NULL, 1, &error), "connection is NULL");
  refused(kauri_check(NULL, &error), "connection is NULL");
  refused(kauri_trim(NULL, &error), "connection is NULL");
  refused(kauri_command(NULL, PING, PING_BYTES, &reply, &error), "connection is NULL");
  CHECK(reply.data == NULL && reply.length == 0);
  refused(kauri_command(c, NULL, PING_BYTES, &reply, &error), "command is NULL");
  refused(kauri_command(c, PING, PING_BYTES, NULL, &error), "reply is NULL");
  refused(kauri_send(NULL, PING, PING_BYTES, NULL, 0, &error), "connection is NULL");
  refused(kauri_send(c, NULL, PING_BYTES, NULL, 0, &error), "command is NULL");
  refused(kauri_send(c, PING, PING_BYTES, NULL, 1, &error), "sequences is NULL");
  refused(kauri_send(c, PING, PING_BYTES, &nameless, 1, &error), "name of a sequence is NULL");
  refused(kauri_send(c, PING, PING_BYTES, &empty, 1, &error), "documents is NULL");
  refused(kauri_send(c, PING, PING_BYTES, &lost, 1, &error), "document 0 of a sequence is NULL");
  refused(kauri_receive(NULL, &reply, &error), "connection is NULL");
  refused(kauri_receive(c, NULL, &error), "reply is NULL");
  CHECK(kauri_get_transport(NULL) == 0 && kauri_get_fallback(NULL) == NULL);
  CHECK(kauri_close(NULL) == KAURI_OK);
  /* Who does not want to know more gives no error structure. */
  CHECK(kauri_command(c, NULL, 0, &reply, NULL) == KAURI_INVALID_ARGUMENT);
  CHECK(kauri_command(c, PING, PING_BYTES, &reply, NULL) == KAURI_OK);
  ping(c);
  close_connection(c);
}

static void invalid_bson_is_refused(void) {
  kauri_connection_t *c = connected();
  kauri_bson_t reply, bad;
  kauri_sequence_t sequence = {"documents", &bad, 1}, many[3];
  uint8_t bytes[PING_BYTES], *huge = calloc(1, KAURI_DOCUMENT_BYTES_MAX + 1);
  CHECK(huge != NULL);
  memcpy(bytes, PING, PING_BYTES);
  for (size_t length = 0; length < PING_BYTES; length++)
    refused(kauri_command(c, PING, length, &reply, &error), length < 5 ? "no document" : "not BSON");
  bytes[0]++;
  refused(kauri_command(c, bytes, PING_BYTES, &reply, &error), "not BSON");
  bytes[0]--, bytes[3] = 0x80;
  refused(kauri_send(c, bytes, PING_BYTES, NULL, 0, &error), "not BSON");
  bytes[3] = 0, bytes[PING_BYTES - 1] = 1;
  bad.data = bytes, bad.length = PING_BYTES;
  refused(kauri_send(c, PING, PING_BYTES, &sequence, 1, &error), "document 0 of a sequence is not");
  bytes[PING_BYTES - 1] = 0;
  refused(kauri_command(c, PING, SIZE_MAX, &reply, &error), "no document");
  refused(kauri_command(c, huge, KAURI_DOCUMENT_BYTES_MAX + 1, &reply, &error), "no document");
  sequence.count = SIZE_MAX;
  refused(kauri_send(c, PING, PING_BYTES, &sequence, 1, &error), "more than a message can hold");
  refused(kauri_send(c, PING, PING_BYTES, &sequence, 3, &error), "more than a message can hold");
  sequence.count = 1;
  many[0] = many[1] = sequence;
  refused(kauri_send(c, PING, PING_BYTES, many, 2, &error), "two document sequences 'documents'");
  sequence.name = "";
  refused(kauri_send(c, PING, PING_BYTES, &sequence, 1, &error), "without a name");
  sequence.name = "\xff";
  refused(kauri_send(c, PING, PING_BYTES, &sequence, 1, &error), "not UTF-8");
  ping(c);
  close_connection(c);
  free(huge);
}

static void unaligned_arguments_are_refused(void) {
  kauri_connection_t *c = connected();
  /* Addresses only: nothing may be read or written there. */
  uintptr_t odd = 9;
  refused(kauri_connect(server_uri, 0, (kauri_connection_t **)odd, &error), "not aligned");
  refused(kauri_command(c, PING, PING_BYTES, (kauri_bson_t *)odd, &error), "not aligned");
  refused(kauri_send(c, PING, PING_BYTES, (kauri_sequence_t *)odd, 1, &error), "not aligned");
  refused(kauri_check((kauri_connection_t *)odd, &error), "not aligned");
  CHECK(kauri_check(c, (kauri_error_t *)odd) == KAURI_OK);
  close_connection(c);
}

static void no_connection(const char *uri, kauri_status_t status, const char *words) {
  kauri_connection_t *connection = (kauri_connection_t *)8;
  CHECK(kauri_connect(uri, 0, &connection, &error) == status);
  CHECK(error.status == status && connection == NULL);
  CHECK(strstr(error.message, words) != NULL);
}

static void a_wrong_connection_string_is_told(void) {
  no_connection("http://localhost", KAURI_INVALID_URI, "mongodb://");
  no_connection("mongodb://localhost/?tls=true", KAURI_INVALID_URI, "'tls=true' is unknown");
  no_connection("mongodb://localhost/?rdma=yes", KAURI_INVALID_URI, "auto, require or off");
  no_connection("mongodb://\xff", KAURI_INVALID_ARGUMENT, "not UTF-8");
  no_connection(uri_with("sharedMemory=require&rdma=require"), KAURI_INVALID_URI, "one transport");
  no_connection("mongodb://127.0.0.1:1/", KAURI_IO, "refused");
  CHECK(error.code == ECONNREFUSED);
  no_connection("mongodb://%2Fnowhere%2Fx.sock", KAURI_IO, "No such file");
  CHECK(error.code == ENOENT);
}

static int by_socket_file(void) {
  return strstr(server_uri, ".sock") != NULL;
}

static void an_unavailable_required_transport_is_reported(void) {
  if (by_socket_file())
    no_connection(uri_with("rdma=require"), KAURI_UNAVAILABLE, "no RDMA: ");
  else
    no_connection(uri_with("sharedMemory=require"), KAURI_UNAVAILABLE, "no shared memory: ");
}

static void the_reason_for_a_slower_transport_is_reported(void) {
  kauri_connection_t *c;
  int by_file = by_socket_file();
  const char *options = by_file ? "sharedMemory=off&rdma=auto" : "sharedMemory=auto&rdma=off";
  CHECK(kauri_connect(uri_with(options), 0, &c, &error) == KAURI_OK);
  CHECK(kauri_get_transport(c) == (by_file ? KAURI_TRANSPORT_UNIX : KAURI_TRANSPORT_TCP));
  CHECK(strstr(kauri_get_fallback(c), by_file ? "no RDMA: " : "no shared memory: ") != NULL);
  close_connection(c);
  CHECK(kauri_connect(uri_with("sharedMemory=off&rdma=off"), 0, &c, &error) == KAURI_OK);
  CHECK(kauri_get_fallback(c) == NULL);
  close_connection(c);
}

void arguments_tests(void) {
  RUN(names_are_the_headers);
  RUN(each_null_argument_is_refused);
  RUN(invalid_bson_is_refused);
  RUN(unaligned_arguments_are_refused);
  RUN(a_wrong_connection_string_is_told);
  RUN(an_unavailable_required_transport_is_reported);
  RUN(the_reason_for_a_slower_transport_is_reported);
}
