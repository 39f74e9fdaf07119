import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.Vector;
import site.ycsb.ByteIterator;
import site.ycsb.DB;
import site.ycsb.Status;

/** A database that stores nothing and passes each request to a listener. */
public class Recorder extends DB {
  /** Receives the requests, one line each. */
  interface Listener {
    void line(String operation, String key, String length, String fields);
  }

  /** The ordinary client has no listener, and each thread's database counts its inserts. */
  static Listener listener;

  private int inserts;

  @Override
  public void cleanup() {
    System.out.println("@inserts\t" + inserts);
  }

  private static Status say(String operation, String key, String length, Set<String> fields) {
    if (listener != null) {
      String names = fields == null ? "*" : String.join(",", new TreeSet<>(fields));
      listener.line(operation, key, length, names);
    }
    return Status.OK;
  }

  @Override
  public Status read(
      String table, String key, Set<String> fields, Map<String, ByteIterator> result) {
    return say("read", key, "", fields);
  }

  @Override
  public Status scan(
      String table,
      String key,
      int count,
      Set<String> fields,
      Vector<HashMap<String, ByteIterator>> result) {
    return say("scan", key, Integer.toString(count), fields);
  }

  @Override
  public Status update(String table, String key, Map<String, ByteIterator> values) {
    return say("update", key, "", values.keySet());
  }

  @Override
  public Status insert(String table, String key, Map<String, ByteIterator> values) {
    inserts++;
    if (listener == null) {
      System.out.println("@key\t" + key);
    }
    return say("insert", key, "", values.keySet());
  }

  @Override
  public Status delete(String table, String key) {
    return Status.NOT_IMPLEMENTED;
  }
}
