/*
 * Kauri's client for C, C++ and every language that can call C.
 *
 * A connection goes to one server, or follows the primary of a replica set, and uses the fastest transport that both have: shared memory on one
 * host, otherwise RDMA, otherwise TCP or a Unix domain socket. Commands and replies are BSON, as MongoDB's
 * are; this library neither makes nor reads BSON beyond a document's length and final zero.
 *
 *   kauri_connection_t *connection;
 *   kauri_error_t error;
 *   kauri_bson_t reply;
 *   if (kauri_connect("mongodb://localhost:27017/?sharedMemory=auto", 0, &connection, &error) != KAURI_OK)
 *     ...
 *   if (kauri_command(connection, command, command_length, &reply, &error) != KAURI_OK)
 *     ...
 *   kauri_close(connection);
 *
 * Errors. Functions that can fail answer a status and, if `error` is neither NULL nor misaligned, fill it, also on
 * success. Results are nothing (NULL, 0) after a failure, except that with KAURI_COMMAND the reply is there: it
 * may say more (not from kauri_connect, which gives no reply). Statuses and transports may come to be more: a
 * switch needs a default. errno is not kept.
 *
 * Ownership. The library keeps nothing of what it is given: all arguments may be freed when a call returns.
 * What it lends (a reply, a reason) is the connection's, and must be neither changed nor freed. A
 * connection is given back with kauri_close, once.
 *
 * Lifetimes. A reply lies where it was received: it can be read until the next kauri_command,
 * kauri_receive, kauri_trim or kauri_close on the same connection. kauri_send leaves it as it is, and may be
 * given it; kauri_command on the same connection may not. Who needs it longer copies it. It is not aligned, and
 * what is in it is the server's word: of it only the length and the final zero were looked at.
 *
 * Threads. Different connections are independent of each other. One connection may go from thread to
 * thread, but is used by one at a time: a call while another thread is within one does nothing and answers
 * KAURI_IN_USE. That helps to find mistakes and protects from none: who closes a connection sees to it that nobody
 * is within a call on it, or comes. The two functions that only read what never changes (kauri_get_transport,
 * kauri_get_fallback) may be called at any time before kauri_close. Nothing may be called with a
 * connection that was closed. After fork() a connection is the parent's alone; the child may make its own, if
 * no other thread was within kauri_connect when it was forked. A thread must not leave a call by longjmp or be
 * cancelled within one. Signals may come: they neither end nor prolong a wait.
 *
 * Failures. KAURI_IO, KAURI_TIMED_OUT, KAURI_PROTOCOL and KAURI_INTERNAL end a connection: what would be
 * received next could be the answer to something else. Every later call on it answers the same error, and
 * all that is left to do is to close it. After every other status it is as it was before. Only kauri_check finds
 * an end (KAURI_IO) before it has become the connection's failure. Whether a request was carried out whose reply
 * was not received, because of a failure or of kauri_close, is not known. No call raises a signal, exits, or lets a
 * Rust panic out (which writes to stderr and becomes KAURI_INTERNAL), except that the process is aborted where
 * memory of a few KB can't be had; where memory for a large message can't be had it is an error.
 *
 * Replica sets. A connection string with several hosts, or with replicaSet, means a set. No failure ends such a
 * connection: the call answers it once, replies that were not received are lost, and the next request goes to a server
 * that is selected anew, which takes serverSelectionTimeoutMS at most. A request that is alone in flight, has at most
 * 1 MB and may be repeated is repeated once, and a failure is not seen: reads, and writes of single documents, which
 * the library gives an lsid and a txnNumber unless the command has them. kauri_get_transport tells of the present
 * server, kauri_get_fallback of the first.
 */
#ifndef KAURI_H
#define KAURI_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define KAURI_VERSION "0.1.0"

/* The longest document that a command, or one document of a sequence, may be. A stored document may have
 * 16 MB; the rest is for what a command has around it. */
#define KAURI_DOCUMENT_BYTES_MAX (16 * 1024 * 1024 + 16 * 1024)
/* The longest message: a command, its document sequences, and a few bytes for each. */
#define KAURI_MESSAGE_BYTES_MAX 48000000

typedef int32_t kauri_status_t;
enum {
  KAURI_OK = 0,
  /* An argument is NULL, not aligned, too long, or not BSON. Nothing was sent. */
  KAURI_INVALID_ARGUMENT = 1,
  /* The connection string can't be used. */
  KAURI_INVALID_URI = 2,
  /* What the connection string requires (sharedMemory=require, rdma=require) can't be had. */
  KAURI_UNAVAILABLE = 3,
  /* The connection could not be made, or it broke, or there is no memory for what the server sends. `code` is the
   * system's errno, or 0. */
  KAURI_IO = 4,
  /* The server did not answer in time. */
  KAURI_TIMED_OUT = 5,
  /* The server sent what no server sends. */
  KAURI_PROTOCOL = 6,
  /* The server answered {ok: 0}. `code` and `code_name` are the server's. */
  KAURI_COMMAND = 7,
  /* Another thread is within a call on this connection. Nothing was done. */
  KAURI_IN_USE = 8,
  /* Nothing is in flight to be received; or replies are in flight, and are to be received first. */
  KAURI_OUT_OF_ORDER = 9,
  /* A fault of this library. */
  KAURI_INTERNAL = 10
};

/* What went wrong: the caller's memory, filled by a call. Texts are UTF-8 and end in a zero byte; what is
 * too long is cut. */
typedef struct kauri_error {
  kauri_status_t status;
  int32_t code;
  char code_name[64];
  char message[440];
} kauri_error_t;

typedef int32_t kauri_transport_t;
enum {
  KAURI_TRANSPORT_TCP = 1,
  KAURI_TRANSPORT_UNIX = 2,
  KAURI_TRANSPORT_SHARED_MEMORY = 3,
  KAURI_TRANSPORT_RDMA = 4
};

/* One BSON document, somewhere: `length` bytes, which is also the number that it begins with. */
typedef struct kauri_bson {
  const uint8_t *data;
  size_t length;
} kauri_bson_t;

/* Documents that belong to a command and lie beside it, as an array in it would (in OP_MSG: a section of
 * kind 1): those of a bulk insert are "documents", of updates "updates", of deletes "deletes". */
typedef struct kauri_sequence {
  /* The field that they stand for; the command must not have it. */
  const char *name;
  const kauri_bson_t *documents;
  size_t count;
} kauri_sequence_t;

/* A connection; only this library knows what is in it. */
typedef struct kauri_connection kauri_connection_t;

/* The library's version, which may be another than the header's. */
const char *kauri_version(void);

/* A status as text ("timed out"); NULL for a number that is none. */
const char *kauri_status_name(kauri_status_t status);

/* A transport as in connection strings: "tcp", "unix", "sharedMemory", "rdma"; NULL for a number that is none. */
const char *kauri_transport_name(kauri_transport_t transport);

/*
 * Connects, says hello, and changes over to the fastest transport, all within `timeout_ms` milliseconds (0, unlike
 * in kauri_set_timeout: what the connection string says as connectTimeoutMS, otherwise 10 s). Only asking for the
 * address of a name may take longer, and then no time is left. Several addresses of a name share the time.
 * KAURI_COMMAND: the server refuses the hello.
 *
 * `uri` is mongodb://HOST[:PORT][,...]/?OPTION=VALUE&..., with a percent-encoded path that ends in .sock for a Unix
 * domain socket. Options:
 *   sharedMemory=auto|require|off   on one host
 *   rdma=auto|require|off           beyond it
 *   rdmaDevice=NAME                 by default the first that is active
 *   socketTimeoutMS=N               how long the server may be silent, while connecting too; see kauri_set_timeout
 *   connectTimeoutMS=N              see above; 0: for ever
 *   appName=NAME                    for the server's log
 *   spinMicros=N                    how long to look for a reply before sleeping (20)
 *   ringBytes=N                     the size of shared memory's rings
 *   replicaSet=NAME                 the set's name; another set's servers are refused (KAURI_UNAVAILABLE)
 *   directConnection=true|false     true: this server, whatever it is; false: its set
 * and of a set:
 *   readPreference=MODE             primary, primaryPreferred, secondary, secondaryPreferred or nearest
 *   readPreferenceTags=TAG:VALUE,..  members with these tags; several times: the first set that any member has
 *   maxStalenessSeconds=N           no secondary that is further behind, at least 90
 *   heartbeatFrequencyMS=N          how often that is looked at (10000)
 *   serverSelectionTimeoutMS=N      how long a server that fits is looked for (30000)
 *   localThresholdMS=N              how much later than the fastest a server may answer to be selected (15)
 *   retryWrites=true|false, retryReads=true|false   whether requests are repeated
 */
kauri_status_t kauri_connect(const char *uri, uint32_t timeout_ms, kauri_connection_t **connection,
                             kauri_error_t *error);

/* Ends a connection and gives back all that is its own. NULL is nothing to do. While another thread is found within
 * a call it answers KAURI_IN_USE, and the connection is still there; see "Threads". It does not wait for
 * replies that are in flight. */
kauri_status_t kauri_close(kauri_connection_t *connection);

/* What the connection goes through; 0 for NULL. */
kauri_transport_t kauri_get_transport(const kauri_connection_t *connection);

/* Why it goes neither through shared memory nor RDMA, though the connection string lets it; NULL if there is
 * nothing to say. The text is there until kauri_close. */
const char *kauri_get_fallback(const kauri_connection_t *connection);

/* How long the server may be silent while a call waits for it, from now on; 0: for ever, which is also how it
 * begins without socketTimeoutMS. Who has waited in vain has KAURI_TIMED_OUT and a connection that has failed. */
kauri_status_t kauri_set_timeout(kauri_connection_t *connection, uint32_t timeout_ms,
                                 kauri_error_t *error);

/* Whether the connection can still be used, as far as can be known without asking the server: KAURI_OK, or
 * the failure, or KAURI_IO if the server has ended it. That KAURI_IO changes nothing: replies that came before the end
 * can be received. */
kauri_status_t kauri_check(kauri_connection_t *connection, kauri_error_t *error);

/*
 * Runs a command and waits for its reply. `command` is one BSON document that names its database ("$db").
 * With KAURI_COMMAND the reply is there too. An answer of {ok: 1} is KAURI_OK even if it has writeErrors.
 * Answers KAURI_OUT_OF_ORDER while replies to kauri_send are in flight.
 */
kauri_status_t kauri_command(kauri_connection_t *connection, const uint8_t *command, size_t length,
                             kauri_bson_t *reply, kauri_error_t *error);

/*
 * Sends a command, with document sequences or without (NULL, 0; two at most), and does not wait for its reply.
 * Any number may be in flight; each is answered, in order, by one kauri_receive. Documents of 64 KB and more
 * go to the transport from where they lie, smaller ones are copied once to go together. What comes in the
 * meantime is kept in memory, so that neither side waits for the other for ever: a sender of very many
 * requests should receive in between.
 */
kauri_status_t kauri_send(kauri_connection_t *connection, const uint8_t *command, size_t length,
                          const kauri_sequence_t *sequences, size_t sequence_count,
                          kauri_error_t *error);

/* Waits for the reply to the oldest request in flight. KAURI_COMMAND as with kauri_command. */
kauri_status_t kauri_receive(kauri_connection_t *connection, kauri_bson_t *reply,
                             kauri_error_t *error);

/* Gives back the memory that large messages have taken, if no reply is in flight (otherwise it does nothing). The
 * last reply is gone then. Rings, and RDMA's zones for large messages, stay as long as the connection. */
kauri_status_t kauri_trim(kauri_connection_t *connection, kauri_error_t *error);

#ifdef __cplusplus
}
#endif

#endif
