/* As much of BSON as the tests need: writing documents, and finding a value by its path. */
#ifndef BSON_H
#define BSON_H

#include <kauri.h>
#include <stdint.h>

enum { TYPE_DOCUMENT = 3, TYPE_ARRAY = 4 };

/* A document that is being written. */
typedef struct doc {
  uint8_t *data;
  size_t length;
  size_t capacity;
  size_t open[8];
  size_t depth;
} doc_t;

doc_t doc_new(void);
void doc_free(doc_t *doc);
void doc_int32(doc_t *doc, const char *key, int32_t value);
void doc_int64(doc_t *doc, const char *key, int64_t value);
void doc_string(doc_t *doc, const char *key, const char *value);
/* So many bytes of the same value. */
void doc_binary(doc_t *doc, const char *key, size_t bytes, uint8_t value);
void doc_open(doc_t *doc, const char *key, int type);
void doc_put(doc_t *doc, const char *key, kauri_bson_t document);
void doc_close(doc_t *doc);
/* Ends it. */
kauri_bson_t doc_end(doc_t *doc);

/* A value in a document: its type is 0 if there is none. */
typedef struct value {
  int type;
  const uint8_t *data;
} value_t;

/* The value at a path like "cursor.firstBatch.0._id". */
value_t value_at(kauri_bson_t document, const char *path);
/* A number or truth value as one; -1 for anything else. */
int64_t number_at(kauri_bson_t document, const char *path);
/* A string; "" for anything else. */
const char *string_at(kauri_bson_t document, const char *path);
/* The elements of an array; -1 if there is none. */
int count_at(kauri_bson_t document, const char *path);
/* A document. */
kauri_bson_t document_at(kauri_bson_t document, const char *path);

#endif
