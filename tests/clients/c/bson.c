#include "bson.h"

#include <stdlib.h>
#include <string.h>

static void append(doc_t *doc, const void *bytes, size_t count) {
  if (doc->length + count > doc->capacity) {
    doc->capacity = 2 * (doc->length + count);
    doc->data = realloc(doc->data, doc->capacity);
    if (doc->data == NULL)
      abort();
  }
  if (count > 0)
    memcpy(doc->data + doc->length, bytes, count);
  doc->length += count;
}

/* Hosts of both byte orders would do; the numbers of BSON are little-endian. */
static void append_number(doc_t *doc, uint64_t number, size_t bytes) {
  uint8_t little[8];
  for (size_t at = 0; at < bytes; at++)
    little[at] = (uint8_t)(number >> (8 * at));
  append(doc, little, bytes);
}

static uint64_t number_of(const uint8_t *data, size_t bytes) {
  uint64_t number = 0;
  for (size_t at = 0; at < bytes; at++)
    number |= (uint64_t)data[at] << (8 * at);
  return number;
}

static void append_key(doc_t *doc, int type, const char *key) {
  uint8_t byte = (uint8_t)type;
  append(doc, &byte, 1);
  append(doc, key, strlen(key) + 1);
}

static void begin(doc_t *doc) {
  doc->open[doc->depth++] = doc->length;
  append_number(doc, 0, 4);
}

doc_t doc_new(void) {
  doc_t doc;
  memset(&doc, 0, sizeof doc);
  begin(&doc);
  return doc;
}

void doc_free(doc_t *doc) {
  free(doc->data);
  memset(doc, 0, sizeof *doc);
}

void doc_int32(doc_t *doc, const char *key, int32_t value) {
  append_key(doc, 0x10, key);
  append_number(doc, (uint32_t)value, 4);
}

void doc_int64(doc_t *doc, const char *key, int64_t value) {
  append_key(doc, 0x12, key);
  append_number(doc, (uint64_t)value, 8);
}

void doc_string(doc_t *doc, const char *key, const char *value) {
  append_key(doc, 0x02, key);
  append_number(doc, strlen(value) + 1, 4);
  append(doc, value, strlen(value) + 1);
}

void doc_binary(doc_t *doc, const char *key, size_t bytes, uint8_t value) {
  uint8_t *content = malloc(bytes + 1);
  if (content == NULL)
    abort();
  memset(content, value, bytes + 1);
  append_key(doc, 0x05, key);
  append_number(doc, bytes, 4);
  append_number(doc, 0, 1);
  append(doc, content, bytes);
  free(content);
}

void doc_open(doc_t *doc, const char *key, int type) {
  append_key(doc, type, key);
  begin(doc);
}

void doc_put(doc_t *doc, const char *key, kauri_bson_t document) {
  append_key(doc, TYPE_DOCUMENT, key);
  append(doc, document.data, document.length);
}

void doc_close(doc_t *doc) {
  uint8_t end = 0;
  size_t start = doc->open[--doc->depth];
  append(doc, &end, 1);
  for (size_t at = 0; at < 4; at++)
    doc->data[start + at] = (uint8_t)((doc->length - start) >> (8 * at));
}

kauri_bson_t doc_end(doc_t *doc) {
  kauri_bson_t whole;
  doc_close(doc);
  whole.data = doc->data;
  whole.length = doc->length;
  return whole;
}

static size_t size_of(int type, const uint8_t *data) {
  switch (type) {
  case 0x01: case 0x09: case 0x11: case 0x12:
    return 8;
  case 0x02:
    return 4 + number_of(data, 4);
  case 0x03: case 0x04:
    return number_of(data, 4);
  case 0x05:
    return 5 + number_of(data, 4);
  case 0x07:
    return 12;
  case 0x08:
    return 1;
  case 0x0a:
    return 0;
  case 0x10:
    return 4;
  default:
    abort();
  }
}

static value_t value_of(const uint8_t *document, const char *key, size_t key_length) {
  value_t none = {0, NULL};
  const uint8_t *at = document + 4;
  while (*at != 0) {
    value_t value;
    const char *name = (const char *)at + 1;
    value.type = *at;
    value.data = at + 1 + strlen(name) + 1;
    if (strlen(name) == key_length && memcmp(name, key, key_length) == 0)
      return value;
    at = value.data + size_of(value.type, value.data);
  }
  return none;
}

value_t value_at(kauri_bson_t document, const char *path) {
  value_t value = {TYPE_DOCUMENT, document.data};
  for (;;) {
    size_t length = strcspn(path, ".");
    if (value.data == NULL || (value.type != TYPE_DOCUMENT && value.type != TYPE_ARRAY))
      break;
    value = value_of(value.data, path, length);
    if (path[length] == 0)
      return value;
    path += length + 1;
  }
  value.type = 0;
  value.data = NULL;
  return value;
}

int64_t number_at(kauri_bson_t document, const char *path) {
  value_t value = value_at(document, path);
  double real;
  uint64_t bits;
  switch (value.type) {
  case 0x01:
    bits = number_of(value.data, 8);
    memcpy(&real, &bits, sizeof real);
    return (int64_t)real;
  case 0x08:
    return value.data[0];
  case 0x10:
    return (int32_t)number_of(value.data, 4);
  case 0x12:
    return (int64_t)number_of(value.data, 8);
  default:
    return -1;
  }
}

const char *string_at(kauri_bson_t document, const char *path) {
  value_t value = value_at(document, path);
  return value.type == 0x02 ? (const char *)value.data + 4 : "";
}

int count_at(kauri_bson_t document, const char *path) {
  value_t value = value_at(document, path);
  int count = 0;
  if (value.type != TYPE_ARRAY)
    return -1;
  for (const uint8_t *at = value.data + 4; *at != 0; count++) {
    const uint8_t *data = at + 1 + strlen((const char *)at + 1) + 1;
    at = data + size_of(*at, data);
  }
  return count;
}

kauri_bson_t document_at(kauri_bson_t document, const char *path) {
  value_t value = value_at(document, path);
  kauri_bson_t found = {NULL, 0};
  if (value.type == TYPE_DOCUMENT || value.type == TYPE_ARRAY) {
    found.data = value.data;
    found.length = number_of(value.data, 4);
  }
  return found;
}
