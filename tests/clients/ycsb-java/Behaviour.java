package dev.kauri.ycsb;

import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Properties;
import java.util.Set;
import java.util.Vector;
import org.bson.BsonArray;
import org.bson.BsonDocument;
import org.bson.BsonString;
import org.bson.BsonValue;
import site.ycsb.ByteArrayByteIterator;
import site.ycsb.ByteIterator;
import site.ycsb.DBException;
import site.ycsb.Status;

/**
 * The result of each operation of the binding, which YCSB's workloads do not check.
 *
 * <p>Behaviour URL TRANSPORT: a server, with one record put there by run.py, and the property kauri.transport.
 * Prints each passed test; ends with an exception at the first failure. It also stops the server.
 */
final class Behaviour {
  private static final String TABLE = "behaviour";
  private static final long WAIT_NANOS_MAX = 60_000_000_000L;

  private static String url;

  /** The server's process. */
  private static ProcessHandle server;

  private static String transport;

  private interface Test {
    void run(KauriClient client) throws Exception;
  }

  private Behaviour() {}

  public static void main(String[] arguments) throws Exception {
    url = arguments[0];
    transport = arguments[1];
    server = ProcessHandle.of(Long.parseLong(arguments[2])).orElseThrow();
    test("reads what another driver has stored", Behaviour::readsElsewhere);
    test("values are any bytes", Behaviour::anyBytes);
    test("a read gives the fields asked for", Behaviour::readsFields);
    test("an update changes the fields that it names", Behaviour::updates);
    test("a delete deletes one record", Behaviour::deletes);
    test("errors have the server's code", Behaviour::tellsErrors);
    test("a scan goes on in the keys' order", Behaviour::scansInOrder);
    test("a scan may take several replies", Behaviour::scansMuch);
    test("inserts wait for their batch", client -> batches());
    test("a failed batch is reported once", client -> failedBatch());
    test("upserts replace", client -> upserts());
    test("write concerns are the server's", client -> writeConcerns());
    test("another transport is an error", client -> anotherTransport());
    test("what is not known is an error", client -> unknownProperties());
    test("connections are given back", Behaviour::givesBack);
    test("a dead server is unavailable", Behaviour::serverEnds);
  }

  /** Runs a test with a client of its own, in an empty table. */
  private static void test(String name, Test test) throws Exception {
    KauriClient client = client();
    String all = "{delete: '" + TABLE + "', deletes: [{q: {}, limit: 0}]}";
    command("ycsb", BsonDocument.parse(all));
    test.run(client);
    client.cleanup();
    System.out.println("ok " + name);
  }

  private static KauriClient client(String... properties) throws DBException {
    Properties all = new Properties();
    all.setProperty("kauri.url", url);
    all.setProperty("kauri.transport", transport);
    for (String property : properties) {
      String[] pair = property.split("=", 2);
      all.setProperty(pair[0], pair[1]);
    }
    KauriClient client = new KauriClient();
    client.setProperties(all);
    client.init();
    return client;
  }

  /** A command by a connection of its own. */
  private static BsonDocument command(String database, BsonDocument command) throws KauriException {
    try (Connection connection = new Connection(url)) {
      return connection.command(command.append("$db", new BsonString(database)));
    }
  }

  private static void equal(Object got, Object wanted) {
    if (!Objects.equals(got, wanted)) {
      throw new AssertionError(got + ", not " + wanted);
    }
  }

  private static void contains(String text, String part) {
    if (!text.contains(part)) {
      throw new AssertionError("'" + text + "' has no '" + part + "'");
    }
  }

  private static byte[] bytes(String text) {
    return text.getBytes(StandardCharsets.UTF_8);
  }

  private static Map<String, ByteIterator> values(String... pairs) {
    Map<String, ByteIterator> values = new HashMap<>();
    for (String pair : pairs) {
      String[] parts = pair.split("=", 2);
      values.put(parts[0], new ByteArrayByteIterator(bytes(parts[1])));
    }
    return values;
  }

  /** What a record's fields are, as text; null if there is no such record. */
  private static Map<String, String> read(KauriClient client, String key, String... fields) {
    Map<String, ByteIterator> result = new HashMap<>();
    Set<String> asked = fields.length == 0 ? null : Set.of(fields);
    Status status = client.read(TABLE, key, asked, result);
    if (status.equals(Status.NOT_FOUND)) {
      equal(result.size(), 0);
      return null;
    }
    equal(status, Status.OK);
    return texts(result);
  }

  private static Map<String, String> texts(Map<String, ByteIterator> fields) {
    Map<String, String> texts = new HashMap<>();
    fields.forEach((name, value) -> texts.put(name, value.toString()));
    return texts;
  }

  private static void readsElsewhere(KauriClient client) {
    Map<String, ByteIterator> result = new HashMap<>();
    equal(client.read("theirs", "stored elsewhere", null, result), Status.OK);
    equal(result.size(), 10);
    contains(result.get("field3").toString(), "stored elsewhere:field3:");
  }

  private static void anyBytes(KauriClient client) {
    byte[] any = new byte[256];
    for (int at = 0; at < any.length; at++) {
      any[at] = (byte) at;
    }
    Map<String, ByteIterator> values = new HashMap<>(values("none="));
    values.put("any", new ByteArrayByteIterator(any));
    equal(client.insert(TABLE, "ключ", values), Status.OK);
    Map<String, ByteIterator> result = new HashMap<>();
    equal(client.read(TABLE, "ключ", null, result), Status.OK);
    equal(Arrays.equals(result.get("any").toArray(), any), true);
    equal(result.get("none").toArray().length, 0);
    equal(result.size(), 2);
  }

  private static void readsFields(KauriClient client) {
    equal(client.insert(TABLE, "k", values("a=1", "b=2", "c=3")), Status.OK);
    equal(read(client, "k"), Map.of("a", "1", "b", "2", "c", "3"));
    equal(read(client, "k", "c", "a"), Map.of("a", "1", "c", "3"));
    equal(read(client, "l"), null);
  }

  private static void updates(KauriClient client) {
    equal(client.insert(TABLE, "k", values("a=1", "b=2")), Status.OK);
    equal(client.insert(TABLE, "l", values("a=1", "b=2")), Status.OK);
    equal(client.update(TABLE, "k", values("b=3", "c=4")), Status.OK);
    equal(read(client, "k"), Map.of("a", "1", "b", "3", "c", "4"));
    equal(read(client, "l"), Map.of("a", "1", "b", "2"));
    equal(client.update(TABLE, "m", values("a=1")), Status.NOT_FOUND);
    equal(read(client, "m"), null);
  }

  private static void deletes(KauriClient client) {
    equal(client.insert(TABLE, "k", values("a=1")), Status.OK);
    equal(client.insert(TABLE, "l", values("a=1")), Status.OK);
    equal(client.delete(TABLE, "k"), Status.OK);
    equal(read(client, "k"), null);
    equal(read(client, "l"), Map.of("a", "1"));
    equal(client.delete(TABLE, "k"), Status.NOT_FOUND);
  }

  private interface Told {
    void run() throws Exception;
  }

  /** The standard error output of the test. */
  private static String told(Told told) throws Exception {
    PrintStream before = System.err;
    ByteArrayOutputStream said = new ByteArrayOutputStream();
    System.setErr(new PrintStream(said, true, StandardCharsets.UTF_8));
    try {
      told.run();
    } finally {
      System.setErr(before);
    }
    return said.toString(StandardCharsets.UTF_8);
  }

  private static void tellsErrors(KauriClient client) throws Exception {
    equal(client.insert(TABLE, "k", values("a=1")), Status.OK);
    String said =
        told(() -> equal(client.insert(TABLE, "k", values("a=2")), Status.ERROR));
    contains(said, "kauri: insert k: write error (11000): ");
    equal(read(client, "k"), Map.of("a", "1"));
    said = told(() -> equal(client.read("", "k", null, new HashMap<>()), Status.ERROR));
    contains(said, "kauri: read k: InvalidNamespace (73): ");
    String failing = "{configureFailPoint: 'failCommand', mode: {times: 1}, data: {failCommands: ['update'], ";
    command("admin", BsonDocument.parse(failing + "writeConcernError: {code: 64, errmsg: 'slow'}}}"));
    said = told(() -> equal(client.update(TABLE, "k", values("b=1")), Status.ERROR));
    contains(said, "kauri: update k: write error (64): slow");
    equal(client.delete(TABLE, "k"), Status.OK);
    equal(client.insert(TABLE, "k", values("a=1")), Status.OK);
    // The connection goes on.
    equal(read(client, "k"), Map.of("a", "1"));
  }

  private static Vector<HashMap<String, ByteIterator>> scan(
      KauriClient client, String from, int count, Set<String> fields) {
    Vector<HashMap<String, ByteIterator>> found = new Vector<>();
    equal(client.scan(TABLE, from, count, fields, found), found.isEmpty() ? Status.NOT_FOUND : Status.OK);
    return found;
  }

  private static void scansInOrder(KauriClient client) {
    for (int n = 0; n < 150; n++) {
      // 37 and 150 have no common factor: another order than that of the keys.
      int key = 37 * n % 150;
      equal(client.insert(TABLE, String.format("k%03d", key), values("n=" + key, "m=x")), Status.OK);
    }
    for (int count : new int[] {1, 2, 120}) {
      Vector<HashMap<String, ByteIterator>> found = scan(client, "k011", count, Set.of("n"));
      equal(found.size(), count);
      for (int at = 0; at < count; at++) {
        equal(texts(found.get(at)), Map.of("n", Integer.toString(11 + at)));
      }
    }
    equal(scan(client, "k140", 100, null).size(), 10);
    equal(scan(client, "k149", 1, null).size(), 1);
    equal(scan(client, "k1490", 1, null).size(), 0);
  }

  private static void scansMuch(KauriClient client) {
    byte[] much = new byte[1 << 20];
    for (int n = 10; n < 30; n++) {
      Arrays.fill(much, (byte) n);
      Map<String, ByteIterator> values = new HashMap<>();
      values.put("much", new ByteArrayByteIterator(much.clone()));
      equal(client.insert(TABLE, "k" + n, values), Status.OK);
    }
    Vector<HashMap<String, ByteIterator>> found = scan(client, "k", 100, null);
    equal(found.size(), 20);
    for (int n = 10; n < 30; n++) {
      Arrays.fill(much, (byte) n);
      equal(Arrays.equals(found.get(n - 10).get("much").toArray(), much), true);
    }
  }

  private static void batches() throws DBException {
    KauriClient other = client();
    KauriClient client = client("kauri.batchsize=3");
    equal(client.insert(TABLE, "a", values("n=1")), Status.BATCHED_OK);
    equal(client.insert(TABLE, "b", values("n=2")), Status.BATCHED_OK);
    equal(read(other, "a"), null);
    equal(client.insert(TABLE, "c", values("n=3")), Status.OK);
    equal(read(other, "a"), Map.of("n", "1"));
    equal(read(other, "b"), Map.of("n", "2"));
    equal(read(other, "c"), Map.of("n", "3"));
    equal(client.insert(TABLE, "d", values("n=4")), Status.BATCHED_OK);
    // Another table's begins another batch.
    equal(client.insert("another", "a", values("n=5")), Status.BATCHED_OK);
    equal(read(other, "d"), Map.of("n", "4"));
    equal(client.insert(TABLE, "e", values("n=6")), Status.BATCHED_OK);
    equal(read(other, "e"), null);
    client.cleanup();
    equal(read(other, "e"), Map.of("n", "6"));
    other.cleanup();
  }

  private static void failedBatch() throws Exception {
    KauriClient client = client("kauri.batchsize=3");
    String said =
        told(
            () -> {
              equal(client.insert(TABLE, "a", values("n=1")), Status.BATCHED_OK);
              equal(client.insert(TABLE, "a", values("n=2")), Status.BATCHED_OK);
              equal(client.insert(TABLE, "b", values("n=3")), Status.ERROR);
            });
    contains(said, "kauri: insert b: write error (11000): ");
    equal(read(client, "a"), Map.of("n", "1"));
    equal(read(client, "b"), Map.of("n", "3"));
    equal(client.insert(TABLE, "c", values("n=4")), Status.BATCHED_OK);
    client.cleanup();
    KauriClient failing = client("kauri.batchsize=3");
    equal(failing.insert(TABLE, "c", values("n=5")), Status.BATCHED_OK);
    refused(failing::cleanup, "the last inserts: write error (11000): ");
  }

  private static void upserts() throws DBException {
    for (String size : new String[] {"1", "2"}) {
      KauriClient client = client("kauri.upsert=true", "kauri.batchsize=" + size);
      for (String values : new String[] {"a=1", "b=2"}) {
        equal(client.insert(TABLE, "k" + size, values(values)).isOk(), true);
        equal(client.insert(TABLE, "l" + size, values(values)), Status.OK);
      }
      equal(read(client, "k" + size), Map.of("b", "2"));
      equal(read(client, "l" + size), Map.of("b", "2"));
      client.cleanup();
    }
  }

  /** While the test runs, the server logs each command as slow. */
  private static void writeConcerns() throws Exception {
    // Earlier slow commands are not part of this test.
    BsonDocument log = BsonDocument.parse("{getLog: 'global'}");
    int before = command("admin", log).getNumber("totalLinesWritten").intValue();
    command("ycsb", BsonDocument.parse("{profile: 0, slowms: 0}"));
    for (String concern : new String[] {"acknowledged", "journaled", "majority"}) {
      KauriClient client = client("kauri.writeConcern=" + concern);
      equal(client.insert(TABLE, concern, values("a=1")), Status.OK);
      client.cleanup();
    }
    command("ycsb", BsonDocument.parse("{profile: 0, slowms: 100}"));
    List<BsonValue> seen = new ArrayList<>();
    BsonDocument answer = command("admin", log);
    List<BsonValue> lines = answer.getArray("log").getValues();
    int since = answer.getNumber("totalLinesWritten").intValue() - before;
    for (BsonValue line : lines.subList(Math.max(0, lines.size() - since), lines.size())) {
      BsonDocument logged = BsonDocument.parse(line.asString().getValue());
      if (logged.getString("msg").getValue().equals("Slow query")) {
        BsonDocument ran = logged.getDocument("attr").getDocument("command");
        if (ran.containsKey("insert")) {
          seen.add(ran.get("writeConcern"));
        }
      }
    }
    String wanted = "[{w: 1}, {w: 1, j: true}, {w: 'majority'}]";
    equal(seen, BsonArray.parse(wanted).getValues());
  }

  private static void refused(Told told, String why) throws Exception {
    try {
      told.run();
    } catch (DBException e) {
      contains(e.getMessage(), why);
      return;
    }
    throw new AssertionError("no exception: " + why);
  }

  private static void anotherTransport() throws Exception {
    String plain = url.contains(".sock") ? "unix" : "tcp";
    String other = url.contains(".sock") ? "tcp" : "unix";
    refused(
        () -> client("kauri.transport=" + other),
        "the connection goes over " + plain + ", not over " + other);
    String nobody = "mongodb://127.0.0.1:1/";
    refused(() -> client("kauri.url=" + nobody), "no connection to " + nobody);
    // The chosen transport is printed.
    contains(told(() -> client("kauri.transport=auto").cleanup()), "kauri: connected over ");
  }

  private static void unknownProperties() throws Exception {
    refused(() -> client("kauri.transport=ib"), "auto, tcp, unix, shm or rdma, not ib");
    refused(() -> client("kauri.writeConcern=none"), "journaled or majority, not none");
    refused(() -> client("kauri.batchsize=0"), "a number from 1, not 0");
    refused(() -> client("kauri.batchsize=x"), "a number from 1, not x");
    refused(() -> client("kauri.url=localhost"), "kauri.url begins with mongodb://");
    refused(() -> client("kauri.url=" + url + "?w=1"), "w=1");
  }

  /** How many connections the server has, that which asks among them. */
  private static int connections(Connection asked) throws KauriException {
    BsonDocument status = BsonDocument.parse("{serverStatus: 1, $db: 'admin'}");
    return asked.command(status).getDocument("connections").getInt32("current").getValue();
  }

  private static void givesBack(KauriClient client) throws Exception {
    // Of those before the server may still have to notice that they are gone.
    int begun = 2;
    try (Connection asked = new Connection(url)) {
      for (int n = 0; n < 50; n++) {
        KauriClient one = client();
        equal(one.insert(TABLE, "k" + n, values("a=1")), Status.OK);
        one.cleanup();
      }
      long end = System.nanoTime() + WAIT_NANOS_MAX;
      int current;
      while ((current = connections(asked)) != begun && System.nanoTime() < end) {
        Thread.onSpinWait();
      }
      equal(current, begun);
    }
    Connection twice = new Connection(url);
    twice.close();
    twice.close();
  }

  private static void serverEnds(KauriClient client) throws Exception {
    // By a signal: the command is for clients on a loopback address only.
    server.destroy();
    String said =
        told(
            () -> {
              // Until it ends it may still answer.
              long end = System.nanoTime() + WAIT_NANOS_MAX;
              Status status;
              do {
                status = client.read(TABLE, "k", null, new HashMap<>());
              } while (!status.equals(Status.SERVICE_UNAVAILABLE) && System.nanoTime() < end);
              equal(status, Status.SERVICE_UNAVAILABLE);
            });
    contains(said, "kauri: read k: ");
  }
}
