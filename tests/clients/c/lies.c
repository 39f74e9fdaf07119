/* A malicious server that sends invalid replies over TCP. It runs in this program. */
#include "tests.h"

#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

/* A reply {ok: 1.0}: header, flags, section kind, document. */
enum { HEADER = 16, DOCUMENT_AT = 21, REPLY_BYTES = DOCUMENT_AT + 17 };
static const uint8_t OK_DOCUMENT[] = "\x11\0\0\0\1ok\0\0\0\0\0\0\0\xf0\x3f";

/* What is written over the second reply, the one after hello's. */
typedef struct lie {
  const char *words;
  size_t at;
  uint8_t byte;
} lie_t;

static const lie_t LIES[] = {
    {"an answer to request", 8, 0x77},     /* response_to */
    {"a message of", 3, 0x7f},             /* the message's length: 2 GB */
    {"a message of", 0, 1},                /* shorter than its header */
    {"Unknown opcode", 13, 0},             /* the operation */
    {"Unknown section kind", 20, 7},       /* the section's kind */
    {"BSON document", DOCUMENT_AT, 0x70},  /* the document's length */
    {"BSON document", DOCUMENT_AT + 16, 1} /* its final zero */
};
enum { LIES_COUNT = sizeof LIES / sizeof *LIES };

static int read_all(int socket, uint8_t *bytes, size_t count) {
  while (count > 0) {
    ssize_t got = read(socket, bytes, count);
    if (got <= 0)
      return 0;
    bytes += got, count -= (size_t)got;
  }
  return 1;
}

static int32_t read_request(int socket) {
  uint8_t request[4096];
  size_t length;
  CHECK(read_all(socket, request, HEADER));
  length = request[0] + 256u * request[1];
  CHECK(length <= sizeof request && read_all(socket, request + HEADER, length - HEADER));
  return request[4];
}

static void *lies(void *listener) {
  for (size_t lie = 0; lie < LIES_COUNT; lie++) {
    int socket = accept(*(int *)listener, NULL, NULL);
    for (int at = 0; at < 2; at++) {
      uint8_t reply[REPLY_BYTES] = {0}, request = (uint8_t)read_request(socket);
      reply[0] = REPLY_BYTES, reply[8] = request, reply[12] = 0xdd, reply[13] = 7;
      memcpy(reply + DOCUMENT_AT, OK_DOCUMENT, sizeof OK_DOCUMENT);
      if (at == 1)
        reply[LIES[lie].at] = LIES[lie].byte;
      CHECK(write(socket, reply, REPLY_BYTES) == REPLY_BYTES);
    }
    /* Until the client has gone. */
    CHECK(read_all(socket, (uint8_t[1]){0}, 1) == 0);
    close(socket);
  }
  return NULL;
}

static void invalid_replies_end_the_connection(void) {
  char uri[URI_BYTES];
  int listener = listening("?sharedMemory=off&rdma=off", uri);
  pthread_t thread;
  doc_t doc = command_new("ping", NULL);
  kauri_bson_t reply, whole = command_end(&doc, "admin");
  CHECK(pthread_create(&thread, NULL, lies, &listener) == 0);
  for (size_t lie = 0; lie < LIES_COUNT; lie++) {
    kauri_connection_t *c;
    kauri_error_t first;
    CHECK(kauri_connect(uri, 0, &c, &error) == KAURI_OK);
    CHECK(kauri_command(c, whole.data, whole.length, &reply, &error) == KAURI_PROTOCOL);
    CHECK(strstr(error.message, LIES[lie].words) != NULL && reply.data == NULL);
    first = error;
    CHECK(kauri_command(c, whole.data, whole.length, &reply, &error) == KAURI_PROTOCOL);
    CHECK(memcmp(&first, &error, sizeof first) == 0);
    close_connection(c);
  }
  CHECK(pthread_join(thread, NULL) == 0);
  doc_free(&doc);
  close(listener);
}

void lies_tests(void) {
  RUN(invalid_replies_end_the_connection);
}
