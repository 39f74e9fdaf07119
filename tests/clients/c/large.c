/* Documents of the maximum size, in both directions at once, and messages that are too large. */
#include "tests.h"

enum { LARGEST = 16 * 1024 * 1024 };

/* {_id: id, content: …}, as large as a document may be. */
static doc_t largest(int32_t id) {
  doc_t doc = doc_new();
  /* 4 length, 9 _id, 9 "content", 5 of the binary, 1 end. */
  doc_int32(&doc, "_id", id);
  doc_binary(&doc, "content", LARGEST - 4 - 9 - 9 - 5 - 1, (uint8_t)id);
  return doc;
}

static void find_sent(kauri_connection_t *c, int32_t id) {
  doc_t command = find_one("large", id);
  kauri_bson_t whole = command_end(&command, "test");
  CHECK(kauri_send(c, whole.data, whole.length, NULL, 0, &error) == KAURI_OK);
  doc_free(&command);
}

static void found(kauri_connection_t *c, kauri_bson_t document) {
  kauri_bson_t reply, got;
  CHECK(kauri_receive(c, &reply, &error) == KAURI_OK);
  got = document_at(reply, "cursor.firstBatch.0");
  CHECK(got.length == document.length);
  CHECK(memcmp(got.data, document.data, got.length) == 0);
}

static void insert_sent(kauri_connection_t *c, const kauri_bson_t *documents, size_t count,
                        kauri_status_t expected) {
  doc_t command = command_new("insert", "large");
  kauri_bson_t whole = command_end(&command, "test");
  kauri_sequence_t sequence;
  sequence.name = "documents", sequence.documents = documents, sequence.count = count;
  CHECK(kauri_send(c, whole.data, whole.length, &sequence, 1, &error) == expected);
  doc_free(&command);
}

static void the_largest_document_goes_both_ways(void) {
  kauri_connection_t *c = connected();
  doc_t docs[2] = {largest(1), largest(2)}, inserting = command_new("insert", "large");
  kauri_bson_t reply, views[2] = {doc_end(&docs[0]), doc_end(&docs[1])};
  CHECK(views[0].length == LARGEST);
  drop(c, "large");
  /* Beside the command, and within it. */
  insert_sent(c, &views[0], 1, KAURI_OK);
  CHECK(kauri_receive(c, &reply, &error) == KAURI_OK && number_at(reply, "n") == 1);
  doc_open(&inserting, "documents", TYPE_ARRAY);
  doc_put(&inserting, "0", views[1]);
  doc_close(&inserting);
  CHECK(number_at(run(c, &inserting, "test"), "n") == 1);
  /* The server has replies to send while requests are still coming. */
  for (int32_t round = 0; round < 2; round++) {
    find_sent(c, 1);
    find_sent(c, 2);
    insert_sent(c, &views[0], 1, KAURI_OK);
  }
  for (int round = 0; round < 2; round++) {
    found(c, views[0]);
    found(c, views[1]);
    CHECK(kauri_receive(c, &reply, &error) == KAURI_OK);
    CHECK(number_at(reply, "writeErrors.0.code") == 11000);
  }
  CHECK(kauri_trim(c, &error) == KAURI_OK);
  ping(c);
  doc_free(&docs[0]);
  doc_free(&docs[1]);
  close_connection(c);
}

/* The last reply is lent as long as another is to come, whatever would be given back otherwise. */
static void memory_is_given_back_only_when_nothing_is_in_flight(void) {
  kauri_connection_t *c = connected();
  doc_t doc = largest(1);
  kauri_bson_t document = doc_end(&doc), reply, got;
  for (int round = 0; round < 2; round++) {
    find_sent(c, 1);
    CHECK(kauri_receive(c, &reply, &error) == KAURI_OK);
    find_sent(c, 1);
    CHECK(kauri_trim(c, &error) == KAURI_OK);
    got = document_at(reply, "cursor.firstBatch.0");
    CHECK(got.length == document.length);
    CHECK(memcmp(got.data, document.data, got.length) == 0);
    found(c, document);
    CHECK(kauri_trim(c, &error) == KAURI_OK);
  }
  doc_free(&doc);
  close_connection(c);
}

static void too_large_messages_are_refused(void) {
  kauri_connection_t *c = connected();
  doc_t doc = largest(3);
  kauri_bson_t view = doc_end(&doc), three[3] = {view, view, view};
  insert_sent(c, three, 3, KAURI_INVALID_ARGUMENT);
  CHECK(strstr(error.message, "exceeds the maximum of 48000000") != NULL);
  /* It is not looked at. */
  three[2].data = (const uint8_t *)"", three[2].length = SIZE_MAX;
  insert_sent(c, three, 3, KAURI_INVALID_ARGUMENT);
  CHECK(strstr(error.message, "exceeds the maximum of 48000000") != NULL);
  ping(c);
  doc_free(&doc);
  close_connection(c);
}

void large_tests(void) {
  RUN(the_largest_document_goes_both_ways);
  RUN(memory_is_given_back_only_when_nothing_is_in_flight);
  RUN(too_large_messages_are_refused);
}
