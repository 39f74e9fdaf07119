package dev.kauri.ycsb;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.Vector;
import org.bson.BsonArray;
import org.bson.BsonBoolean;
import org.bson.BsonDocument;
import org.bson.BsonInt32;
import org.bson.BsonString;
import org.bson.BsonValue;
import site.ycsb.ByteIterator;
import site.ycsb.DB;
import site.ycsb.DBException;
import site.ycsb.Status;

/**
 * Kauri as a database of YCSB. Each of YCSB's threads has an object of its own, and that a connection of its own.
 *
 * <p>An operation that fails is told on standard error, with the server's code, and in YCSB's summary as ERROR, or as
 * SERVICE_UNAVAILABLE if the connection is gone.
 */
public class KauriClient extends DB {
  private static final BsonDocument ID_ASCENDING = new BsonDocument("_id", new BsonInt32(1));

  private Settings settings;
  private Connection connection;

  /** Inserts that wait for their batch to be full, encoded, and the table that they are for. */
  private final List<byte[]> batch = new ArrayList<>();

  private String batchTable;

  @Override
  public void init() throws DBException {
    settings = new Settings(getProperties());
    try {
      connection = new Connection(settings.uri);
    } catch (KauriException e) {
      throw new DBException("no connection to " + settings.uri + ": " + e.getMessage(), e);
    } catch (LinkageError e) {
      String where = "libkauri.so is in none of the loader's folders, nor in -Djna.library.path";
      throw new DBException(where + ": " + e.getMessage(), e);
    }
    String used = connection.transport();
    String why = connection.fallback() == null ? "" : " (" + connection.fallback() + ")";
    if (settings.transport != null && !settings.transport.equals(used)) {
      connection.close();
      throw new DBException(
          "the connection goes over " + used + ", not over " + settings.transport + why);
    }
    System.err.println("kauri: connected over " + used + why);
  }

  /** Sends what is left of a batch, and closes. */
  @Override
  public void cleanup() throws DBException {
    try {
      flush();
    } catch (KauriException e) {
      throw new DBException("the last inserts: " + e.getMessage(), e);
    } finally {
      connection.close();
    }
  }

  @Override
  public Status read(
      String table, String key, Set<String> fields, Map<String, ByteIterator> result) {
    try {
      List<BsonDocument> found = find(findOf(table, Records.id(key), 1, fields));
      if (found.isEmpty()) {
        return Status.NOT_FOUND;
      }
      result.putAll(Records.fields(found.get(0)));
      return Status.OK;
    } catch (KauriException e) {
      return failed("read", key, e);
    }
  }

  @Override
  public Status scan(
      String table,
      String startkey,
      int recordcount,
      Set<String> fields,
      Vector<HashMap<String, ByteIterator>> result) {
    try {
      BsonDocument from = new BsonDocument("$gte", new BsonString(startkey));
      BsonDocument find = findOf(table, new BsonDocument("_id", from), recordcount, fields);
      List<BsonDocument> found = find(find.append("sort", ID_ASCENDING));
      found.forEach(record -> result.add(Records.fields(record)));
      return found.isEmpty() ? Status.NOT_FOUND : Status.OK;
    } catch (KauriException e) {
      return failed("scan", startkey, e);
    }
  }

  @Override
  public Status update(String table, String key, Map<String, ByteIterator> values) {
    try {
      BsonDocument set = new BsonDocument("$set", Records.with(new BsonDocument(), values));
      return touched(write("update", table, "updates", List.of(updateOf(key, set, false))));
    } catch (KauriException e) {
      return failed("update", key, e);
    }
  }

  @Override
  public Status insert(String table, String key, Map<String, ByteIterator> values) {
    try {
      if (!table.equals(batchTable)) {
        flush();
        batchTable = table;
      }
      BsonDocument record = Records.with(Records.id(key), values);
      batch.add(settings.upsert ? updateOf(key, record, true) : Connection.encode(record));
      if (batch.size() < settings.batchSize) {
        return Status.BATCHED_OK;
      }
      flush();
      return Status.OK;
    } catch (KauriException e) {
      return failed("insert", key, e);
    }
  }

  @Override
  public Status delete(String table, String key) {
    try {
      BsonDocument delete = new BsonDocument("q", Records.id(key)).append("limit", new BsonInt32(1));
      return touched(write("delete", table, "deletes", List.of(Connection.encode(delete))));
    } catch (KauriException e) {
      return failed("delete", key, e);
    }
  }

  private static byte[] updateOf(String key, BsonDocument change, boolean upsert) {
    return Connection.encode(
        new BsonDocument("q", Records.id(key))
            .append("u", change)
            .append("upsert", BsonBoolean.valueOf(upsert)));
  }

  private void flush() throws KauriException {
    if (batch.isEmpty()) {
      return;
    }
    // What failed is told once, and not sent again with the next batch.
    List<byte[]> full = List.copyOf(batch);
    batch.clear();
    if (settings.upsert) {
      write("update", batchTable, "updates", full);
    } else {
      write("insert", batchTable, "documents", full);
    }
  }

  /** Runs statements of one kind, as if each came by itself; answers how many records they found. */
  private int write(String command, String table, String sequence, List<byte[]> statements)
      throws KauriException {
    BsonDocument head =
        new BsonDocument(command, new BsonString(table))
            .append("$db", new BsonString(settings.database))
            .append("ordered", BsonBoolean.FALSE)
            .append("writeConcern", settings.writeConcern);
    BsonDocument reply = connection.command(head, sequence, statements);
    BsonArray errors = reply.getArray("writeErrors", new BsonArray());
    if (!errors.isEmpty()) {
      throw KauriException.of(errors.get(0).asDocument());
    }
    if (reply.containsKey("writeConcernError")) {
      throw KauriException.of(reply.getDocument("writeConcernError"));
    }
    return reply.getNumber("n").intValue();
  }

  private BsonDocument findOf(String table, BsonDocument filter, int limit, Set<String> fields) {
    BsonDocument find =
        new BsonDocument("find", new BsonString(table))
            .append("$db", new BsonString(settings.database))
            .append("filter", filter)
            .append("limit", new BsonInt32(limit))
            .append("batchSize", new BsonInt32(limit));
    return fields == null ? find : find.append("projection", Records.projection(fields));
  }

  private List<BsonDocument> find(BsonDocument find) throws KauriException {
    List<BsonDocument> found = new ArrayList<>();
    BsonDocument cursor = connection.command(find).getDocument("cursor");
    append(found, cursor.getArray("firstBatch"));
    // Only what is too long for one reply comes in several.
    while (cursor.getInt64("id").getValue() != 0) {
      BsonDocument more =
          new BsonDocument("getMore", cursor.getInt64("id"))
              .append("$db", find.get("$db"))
              .append("collection", find.get("find"));
      cursor = connection.command(more).getDocument("cursor");
      append(found, cursor.getArray("nextBatch"));
    }
    return found;
  }

  private static void append(List<BsonDocument> found, BsonArray records) {
    for (BsonValue record : records) {
      found.add(record.asDocument());
    }
  }

  private static Status touched(int count) {
    return count == 0 ? Status.NOT_FOUND : Status.OK;
  }

  private static Status failed(String what, String key, KauriException e) {
    System.err.println("kauri: " + what + " " + key + ": " + e.getMessage());
    return e.status();
  }
}
