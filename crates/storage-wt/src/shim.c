/*
 * Plain functions over WiredTiger's structures of function pointers and its variadic calls. No
 * policy here: each function is one call or a fixed sequence of them, and gives WiredTiger's return
 * code back.
 */
#include <sys/statvfs.h>
#include <wiredtiger.h>

#if WIREDTIGER_VERSION_MAJOR != 3
#error "written for WiredTiger 3"
#endif

typedef void (*kwt_report_fn)(int error, const char *message);
static kwt_report_fn kwt_report;

static int
on_error(WT_EVENT_HANDLER *handler, WT_SESSION *session, int error, const char *message)
{
	(void)handler;
	(void)session;
	if (kwt_report != NULL)
		kwt_report(error, message);
	return (0);
}

static int
on_message(WT_EVENT_HANDLER *handler, WT_SESSION *session, const char *message)
{
	return (on_error(handler, session, 0, message));
}

static WT_EVENT_HANDLER kwt_handler = { on_error, on_message, NULL, NULL };

int
kwt_open(const char *home, const char *config, kwt_report_fn report, WT_CONNECTION **connection)
{
	kwt_report = report;
	return (wiredtiger_open(home, &kwt_handler, config, connection));
}

int
kwt_close(WT_CONNECTION *connection)
{
	return (connection->close(connection, NULL));
}

int
kwt_session_open(WT_CONNECTION *connection, const char *config, WT_SESSION **session)
{
	return (connection->open_session(connection, NULL, config, session));
}

int
kwt_session_close(WT_SESSION *session)
{
	return (session->close(session, NULL));
}

int
kwt_create(WT_SESSION *session, const char *name, const char *config)
{
	return (session->create(session, name, config));
}

int
kwt_drop(WT_SESSION *session, const char *name, const char *config)
{
	return (session->drop(session, name, config));
}

int
kwt_begin(WT_SESSION *session)
{
	return (session->begin_transaction(session, NULL));
}

int
kwt_commit(WT_SESSION *session)
{
	return (session->commit_transaction(session, NULL));
}

int
kwt_rollback(WT_SESSION *session)
{
	return (session->rollback_transaction(session, NULL));
}

int
kwt_checkpoint(WT_SESSION *session)
{
	return (session->checkpoint(session, NULL));
}

int
kwt_log_flush(WT_SESSION *session, const char *config)
{
	return (session->log_flush(session, config));
}

int
kwt_cursor_open(WT_SESSION *session, const char *uri, const char *config, WT_CURSOR **cursor)
{
	return (session->open_cursor(session, uri, NULL, config, cursor));
}

int
kwt_cursor_close(WT_CURSOR *cursor)
{
	return (cursor->close(cursor));
}

int
kwt_reset(WT_CURSOR *cursor)
{
	return (cursor->reset(cursor));
}

int
kwt_next(WT_CURSOR *cursor)
{
	return (cursor->next(cursor));
}

int
kwt_prev(WT_CURSOR *cursor)
{
	return (cursor->prev(cursor));
}

void
kwt_set_key_q(WT_CURSOR *cursor, int64_t key)
{
	cursor->set_key(cursor, key);
}

void
kwt_set_key_u(WT_CURSOR *cursor, const void *data, size_t size)
{
	WT_ITEM item = { 0 };

	item.data = data;
	item.size = size;
	cursor->set_key(cursor, &item);
}

void
kwt_set_value_u(WT_CURSOR *cursor, const void *data, size_t size)
{
	WT_ITEM item = { 0 };

	item.data = data;
	item.size = size;
	cursor->set_value(cursor, &item);
}

int
kwt_search(WT_CURSOR *cursor)
{
	return (cursor->search(cursor));
}

int
kwt_search_near(WT_CURSOR *cursor, int *exact)
{
	return (cursor->search_near(cursor, exact));
}

int
kwt_insert(WT_CURSOR *cursor)
{
	return (cursor->insert(cursor));
}

int
kwt_update(WT_CURSOR *cursor)
{
	return (cursor->update(cursor));
}

int
kwt_remove(WT_CURSOR *cursor)
{
	return (cursor->remove(cursor));
}

int
kwt_get_key_q(WT_CURSOR *cursor, int64_t *key)
{
	return (cursor->get_key(cursor, key));
}

int
kwt_get_key_u(WT_CURSOR *cursor, const void **data, size_t *size)
{
	WT_ITEM item;
	int ret;

	if ((ret = cursor->get_key(cursor, &item)) == 0) {
		*data = item.data;
		*size = item.size;
	}
	return (ret);
}

int
kwt_get_key_s(WT_CURSOR *cursor, const char **key)
{
	return (cursor->get_key(cursor, key));
}

int
kwt_get_value_u(WT_CURSOR *cursor, const void **data, size_t *size)
{
	WT_ITEM item;
	int ret;

	if ((ret = cursor->get_value(cursor, &item)) == 0) {
		*data = item.data;
		*size = item.size;
	}
	return (ret);
}

/* One of the connection's statistics; which of them, see sys.rs. */
int
kwt_statistic(WT_SESSION *session, int which, int64_t *value)
{
	static const int keys[] = {
		WT_STAT_CONN_CACHE_BYTES_INUSE,
		WT_STAT_CONN_CACHE_BYTES_MAX,
		WT_STAT_CONN_CACHE_BYTES_DIRTY,
		WT_STAT_CONN_BLOCK_BYTE_WRITE,
		WT_STAT_CONN_LOG_BYTES_WRITTEN,
		WT_STAT_CONN_LOG_SYNC,
		WT_STAT_CONN_TXN_CHECKPOINT,
	};
	const char *description, *printed;
	WT_CURSOR *cursor;
	int ret;

	if (which < 0 || (size_t)which >= sizeof(keys) / sizeof(keys[0]))
		return (WT_NOTFOUND);
	ret = session->open_cursor(session, "statistics:", NULL, "statistics=(fast)", &cursor);
	if (ret != 0)
		return (ret);
	cursor->set_key(cursor, keys[which]);
	if ((ret = cursor->search(cursor)) == 0)
		ret = cursor->get_value(cursor, &description, &printed, value);
	(void)cursor->close(cursor);
	return (ret);
}

/* Size and used bytes of the file system that holds the path. */
int
kwt_space(const char *path, uint64_t *total, uint64_t *used)
{
	struct statvfs fs;

	if (statvfs(path, &fs) != 0)
		return (-1);
	*total = (uint64_t)fs.f_blocks * fs.f_frsize;
	*used = (uint64_t)(fs.f_blocks - fs.f_bfree) * fs.f_frsize;
	return (0);
}
