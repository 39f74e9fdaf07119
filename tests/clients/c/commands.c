/* Commands one by one and pipelined, document sequences, cursors, errors, and the server's counters. */
#include "tests.h"

#include <pthread.h>

/* Documents in one piece of memory, as a program that loads data has them. */
typedef struct batch {
  doc_t docs[1000];
  kauri_bson_t views[1000];
  size_t count;
} batch_t;

/* {_id: …, content: BinData}, of that many bytes and more each. */
static void batch_fill(batch_t *batch, size_t count, size_t (*bytes)(size_t)) {
  batch->count = count;
  for (size_t at = 0; at < count; at++) {
    batch->docs[at] = doc_new();
    doc_int32(&batch->docs[at], "_id", (int32_t)at);
    doc_binary(&batch->docs[at], "content", bytes(at), (uint8_t)at);
    batch->views[at] = doc_end(&batch->docs[at]);
  }
}

static void batch_free(batch_t *batch) {
  for (size_t at = 0; at < batch->count; at++)
    doc_free(&batch->docs[at]);
}

static kauri_bson_t insert(kauri_connection_t *c, const char *collection, const batch_t *batch) {
  doc_t command = command_new("insert", collection);
  kauri_bson_t reply, whole = command_end(&command, "test");
  kauri_sequence_t sequence;
  sequence.name = "documents", sequence.documents = batch->views, sequence.count = batch->count;
  CHECK(kauri_send(c, whole.data, whole.length, &sequence, 1, &error) == KAURI_OK);
  doc_free(&command);
  CHECK(kauri_receive(c, &reply, &error) == KAURI_OK);
  return reply;
}

/* Finds all by _id in batches of 100, and compares each with what was inserted. */
static void all_are_there(kauri_connection_t *c, const char *collection, const batch_t *batch) {
  doc_t command = command_new("find", collection);
  const char *name = "cursor.firstBatch";
  size_t found = 0;
  doc_open(&command, "sort", TYPE_DOCUMENT);
  doc_int32(&command, "_id", 1);
  doc_close(&command);
  doc_int32(&command, "batchSize", 100);
  for (;;) {
    kauri_bson_t reply = run(c, &command, "test");
    int count = count_at(reply, name);
    for (int at = 0; at < count; at++, found++) {
      char path[64];
      kauri_bson_t document;
      snprintf(path, sizeof path, "%s.%d", name, at);
      document = document_at(reply, path);
      CHECK(document.length == batch->views[found].length);
      CHECK(memcmp(document.data, batch->views[found].data, document.length) == 0);
    }
    if (number_at(reply, "cursor.id") == 0)
      break;
    CHECK(count > 0);
    name = "cursor.nextBatch";
    command = doc_new();
    doc_int64(&command, "getMore", number_at(reply, "cursor.id"));
    doc_string(&command, "collection", collection);
    doc_int32(&command, "batchSize", 100);
  }
  CHECK(found == batch->count);
}

static size_t small(size_t at) {
  return at % 300;
}

/* Some on either side of what is copied (64 KB), in no order. */
static size_t mixed(size_t at) {
  static const size_t SIZES[] = {10, 40000, 65500, 65536, 100, 3000, 90000, 1};
  return SIZES[at % 8];
}

static void are_found(const char *collection, size_t count, size_t (*size)(size_t at)) {
  kauri_connection_t *c = connected();
  batch_t batch;
  drop(c, collection);
  batch_fill(&batch, count, size);
  CHECK(number_at(insert(c, collection, &batch), "n") == (int64_t)count);
  all_are_there(c, collection, &batch);
  batch_free(&batch);
  close_connection(c);
}

static void inserted_documents_are_found(void) {
  are_found("many", 1000, small);
}

static void sequences_of_documents_of_any_size_are_sent(void) {
  are_found("mixed", 203, mixed);
}

static void an_error_has_the_servers_code_and_the_reply(void) {
  kauri_connection_t *c = connected();
  doc_t command = command_new("nonsense", NULL);
  kauri_bson_t reply, whole = command_end(&command, "test");
  CHECK(kauri_command(c, whole.data, whole.length, &reply, &error) == KAURI_COMMAND);
  CHECK(error.status == KAURI_COMMAND && error.code == 59);
  CHECK(strcmp(error.code_name, "CommandNotFound") == 0);
  CHECK(strcmp(error.message, string_at(reply, "errmsg")) == 0 && error.message[0] != 0);
  CHECK(number_at(reply, "ok") == 0 && number_at(reply, "code") == 59);
  doc_free(&command);
  ping(c);
  CHECK(error.status == KAURI_OK && error.code == 0 && error.code_name[0] == 0);
  close_connection(c);
}

static void write_errors_are_in_the_reply(void) {
  kauri_connection_t *c = connected();
  batch_t batch;
  kauri_bson_t reply;
  drop(c, "twice");
  batch_fill(&batch, 3, small);
  CHECK(number_at(insert(c, "twice", &batch), "n") == 3);
  reply = insert(c, "twice", &batch);
  CHECK(number_at(reply, "n") == 0 && number_at(reply, "writeErrors.0.code") == 11000);
  batch_free(&batch);
  close_connection(c);
}

/* Every third request is one that the server refuses. */
static void replies_come_in_the_order_of_requests(void) {
  enum { REQUESTS = 300 };
  kauri_connection_t *c = connected();
  batch_t batch;
  kauri_bson_t reply;
  drop(c, "ordered");
  batch_fill(&batch, REQUESTS, small);
  insert(c, "ordered", &batch);
  CHECK(kauri_receive(c, &reply, &error) == KAURI_OUT_OF_ORDER && reply.data == NULL);
  for (int32_t id = 0; id < REQUESTS; id++) {
    doc_t command = id % 3 == 2 ? command_new("nonsense", NULL) : find_one("ordered", id);
    kauri_bson_t whole = command_end(&command, "test");
    CHECK(kauri_send(c, whole.data, whole.length, NULL, 0, &error) == KAURI_OK);
    CHECK(kauri_command(c, whole.data, whole.length, &reply, &error) == KAURI_OUT_OF_ORDER);
    doc_free(&command);
  }
  CHECK(kauri_check(c, &error) == KAURI_OK);
  for (int32_t id = 0; id < REQUESTS; id++) {
    kauri_status_t status = kauri_receive(c, &reply, &error);
    CHECK(status == (id % 3 == 2 ? KAURI_COMMAND : KAURI_OK));
    if (status == KAURI_OK) {
      CHECK(count_at(reply, "cursor.firstBatch") == 1);
      CHECK(number_at(reply, "cursor.firstBatch.0._id") == id);
    }
  }
  CHECK(kauri_receive(c, &reply, &error) == KAURI_OUT_OF_ORDER);
  ping(c);
  batch_free(&batch);
  close_connection(c);
}

static void a_reply_stays_while_requests_are_sent(void) {
  kauri_connection_t *c = connected();
  doc_t doc = command_new("buildInfo", NULL);
  kauri_bson_t reply = run(c, &doc, "admin"), command, next;
  uint8_t *copy = malloc(reply.length);
  CHECK(copy != NULL);
  memcpy(copy, reply.data, reply.length);
  doc = command_new("ping", NULL);
  command = command_end(&doc, "admin");
  for (int at = 0; at < 100; at++)
    CHECK(kauri_send(c, command.data, command.length, NULL, 0, &error) == KAURI_OK);
  CHECK(kauri_trim(c, &error) == KAURI_OK);
  CHECK(kauri_check(c, &error) == KAURI_OK);
  CHECK(kauri_set_timeout(c, 0, &error) == KAURI_OK);
  CHECK(memcmp(copy, reply.data, reply.length) == 0);
  for (int at = 0; at < 100; at++)
    CHECK(kauri_receive(c, &next, &error) == KAURI_OK && number_at(next, "ok") == 1);
  doc_free(&doc);
  free(copy);
  close_connection(c);
}

static int64_t frames_in(kauri_connection_t *c, const char *section) {
  doc_t command = command_new("serverStatus", NULL);
  kauri_bson_t reply = run(c, &command, "admin");
  char path[64];
  snprintf(path, sizeof path, "%s.framesIn", section);
  return number_at(reply, path);
}

/* A request is one frame at least; over a socket it is none. */
static void requests_go_the_way_that_is_told(void) {
  enum { REQUESTS = 200 };
  static const char *const SECTIONS[] = {"sharedMemory", "rdma"};
  static const kauri_transport_t WAYS[] = {KAURI_TRANSPORT_SHARED_MEMORY, KAURI_TRANSPORT_RDMA};
  kauri_connection_t *c = connected();
  CHECK(server_transport == KAURI_TRANSPORT_TCP || kauri_get_fallback(c) == NULL);
  for (size_t at = 0; at < 2; at++) {
    int64_t before = frames_in(c, SECTIONS[at]), frames;
    for (int n = 0; n < REQUESTS; n++)
      ping(c);
    frames = frames_in(c, SECTIONS[at]) - before;
    CHECK(WAYS[at] == server_transport ? frames >= REQUESTS : frames == 0);
  }
  close_connection(c);
}

static void *pings(void *arg) {
  kauri_connection_t *c = connected();
  (void)arg;
  for (int n = 0; n < 200; n++)
    ping(c);
  close_connection(c);
  return NULL;
}

static void connections_are_independent(void) {
  pthread_t threads[4];
  for (size_t at = 0; at < 4; at++)
    CHECK(pthread_create(&threads[at], NULL, pings, NULL) == 0);
  for (size_t at = 0; at < 4; at++)
    CHECK(pthread_join(threads[at], NULL) == 0);
}

void commands_tests(void) {
  RUN(inserted_documents_are_found);
  RUN(sequences_of_documents_of_any_size_are_sent);
  RUN(an_error_has_the_servers_code_and_the_reply);
  RUN(write_errors_are_in_the_reply);
  RUN(replies_come_in_the_order_of_requests);
  RUN(a_reply_stays_while_requests_are_sent);
  RUN(requests_go_the_way_that_is_told);
  RUN(connections_are_independent);
}
