package dev.kauri.ycsb;

import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import org.bson.BsonBinary;
import org.bson.BsonDocument;
import org.bson.BsonInt32;
import org.bson.BsonString;
import org.bson.BsonValue;
import site.ycsb.ByteArrayByteIterator;
import site.ycsb.ByteIterator;

/**
 * YCSB's records as documents, laid out as YCSB's binding for MongoDB does: the key as _id, and each field as binary
 * under its name.
 */
final class Records {
  private Records() {}

  /** The condition that a record has this key. */
  static BsonDocument id(String key) {
    return new BsonDocument("_id", new BsonString(key));
  }

  /** Appends the fields to a document. */
  static BsonDocument with(BsonDocument document, Map<String, ByteIterator> fields) {
    fields.forEach((name, value) -> document.append(name, new BsonBinary(value.toArray())));
    return document;
  }

  static HashMap<String, ByteIterator> fields(BsonDocument record) {
    HashMap<String, ByteIterator> fields = new HashMap<>();
    for (Map.Entry<String, BsonValue> entry : record.entrySet()) {
      if (entry.getValue().isBinary()) {
        byte[] value = entry.getValue().asBinary().getData();
        fields.put(entry.getKey(), new ByteArrayByteIterator(value));
      }
    }
    return fields;
  }

  static BsonDocument projection(Set<String> fields) {
    BsonDocument projection = new BsonDocument();
    fields.forEach(name -> projection.append(name, new BsonInt32(1)));
    return projection;
  }
}
