/* The tests of the C client: what they have in common. */
#ifndef TESTS_H
#define TESTS_H

#include "bson.h"

#include <kauri.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { URI_BYTES = 128 };

/* Ends the program if it does not hold. */
#define CHECK(condition)                                                                           \
  do {                                                                                             \
    if (!(condition)) {                                                                            \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                      \
      fprintf(stderr, "the last error: %d (%d %s) %s\n", (int)error.status, (int)error.code,       \
              error.code_name, error.message);                                                     \
      exit(1);                                                                                     \
    }                                                                                              \
  } while (0)

/* Counts a test that has passed. */
#define RUN(test)                                                                                  \
  do {                                                                                             \
    test();                                                                                        \
    printf("ok %s\n", #test);                                                                      \
    fflush(stdout);                                                                                \
    tests_passed++;                                                                                \
  } while (0)

/* What the calls fill. */
extern _Thread_local kauri_error_t error;
extern int tests_passed;
/* The connection string, and the transport that it must come to. */
extern const char *server_uri;
extern kauri_transport_t server_transport;

/* The connection string with other options. */
const char *uri_with(const char *options);
kauri_connection_t *connected(void);
/* A command whose first field is `name` and that ends in $db. */
doc_t command_new(const char *name, const char *collection);
kauri_bson_t command_end(doc_t *doc, const char *database);
/* Runs it, frees it, checks that it succeeds. */
kauri_bson_t run(kauri_connection_t *connection, doc_t *command, const char *database);
/* {find: "c", filter: {_id: id}}. */
doc_t find_one(const char *collection, int32_t id);
void drop(kauri_connection_t *connection, const char *collection);
void ping(kauri_connection_t *connection);
void close_connection(kauri_connection_t *connection);
/* A socket that listens on this host, and the connection string for it, with these options. */
int listening(const char *options, char uri[URI_BYTES]);

void arguments_tests(void);
void commands_tests(void);
void large_tests(void);
void lies_tests(void);
/* These stop and kill the server. */
void failures_tests(void);

#endif
