package dev.kauri.ycsb;

import java.util.Locale;
import java.util.Properties;
import org.bson.BsonBoolean;
import org.bson.BsonDocument;
import org.bson.BsonInt32;
import org.bson.BsonString;
import site.ycsb.DBException;

/** The properties that begin with kauri, read and checked. README.md describes them. */
final class Settings {
  private static final String SCHEME = "mongodb://";

  /** Where the server is, with all that the library is to know. */
  final String uri;

  final String database;

  /** What connections have to go through, as the library calls it; null: whatever comes. */
  final String transport;

  final BsonDocument writeConcern;
  final int batchSize;
  final boolean upsert;

  Settings(Properties properties) throws DBException {
    String url = properties.getProperty("kauri.url", "mongodb://127.0.0.1:27017/ycsb");
    if (!url.startsWith(SCHEME)) {
      throw new DBException("kauri.url begins with " + SCHEME + ", unlike " + url);
    }
    String[] place = url.split("\\?", 2)[0].substring(SCHEME.length()).split("/", 2);
    database = place.length == 2 && !place[1].isEmpty() ? place[1] : "ycsb";
    String options;
    switch (properties.getProperty("kauri.transport", "auto")) {
      case "auto":
        transport = null;
        options = "";
        break;
      case "tcp":
        transport = "tcp";
        options = "sharedMemory=off&rdma=off";
        break;
      case "unix":
        transport = "unix";
        options = "sharedMemory=off&rdma=off";
        break;
      case "shm":
        transport = "sharedMemory";
        options = "sharedMemory=require&rdma=off";
        break;
      case "rdma":
        transport = "rdma";
        options = "sharedMemory=off&rdma=require";
        break;
      default:
        throw unknown(properties, "kauri.transport", "auto, tcp, unix, shm or rdma");
    }
    // Of an option that is there twice the library takes the last.
    uri = url + (url.contains("?") ? "&" : place.length == 2 ? "?" : "/?") + options;
    switch (properties.getProperty("kauri.writeConcern", "acknowledged").toLowerCase(Locale.ROOT)) {
      case "acknowledged":
        writeConcern = new BsonDocument("w", new BsonInt32(1));
        break;
      case "journaled":
        writeConcern = new BsonDocument("w", new BsonInt32(1)).append("j", BsonBoolean.TRUE);
        break;
      case "majority":
        writeConcern = new BsonDocument("w", new BsonString("majority"));
        break;
      default:
        throw unknown(properties, "kauri.writeConcern", "acknowledged, journaled or majority");
    }
    batchSize = number(properties, "kauri.batchsize");
    upsert = Boolean.parseBoolean(properties.getProperty("kauri.upsert", "false"));
  }

  private static int number(Properties properties, String name) throws DBException {
    try {
      int number = Integer.parseInt(properties.getProperty(name, "1"));
      if (number > 0) {
        return number;
      }
    } catch (NumberFormatException e) {
      // Told below.
    }
    throw unknown(properties, name, "a number from 1");
  }

  private static DBException unknown(Properties properties, String name, String known) {
    return new DBException(name + " is " + known + ", not " + properties.getProperty(name));
  }
}
