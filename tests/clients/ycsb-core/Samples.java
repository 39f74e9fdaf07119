import java.io.ByteArrayInputStream;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.CharBuffer;
import java.nio.charset.CodingErrorAction;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.TreeMap;
import java.util.concurrent.ThreadLocalRandom;
import site.ycsb.RandomByteIterator;
import site.ycsb.Utils;
import site.ycsb.generator.ConstantIntegerGenerator;
import site.ycsb.generator.CounterGenerator;
import site.ycsb.generator.ExponentialGenerator;
import site.ycsb.generator.HistogramGenerator;
import site.ycsb.generator.HotspotIntegerGenerator;
import site.ycsb.generator.NumberGenerator;
import site.ycsb.generator.ScrambledZipfianGenerator;
import site.ycsb.generator.SequentialGenerator;
import site.ycsb.generator.SkewedLatestGenerator;
import site.ycsb.generator.UniformLongGenerator;
import site.ycsb.generator.ZipfianGenerator;
import site.ycsb.measurements.Measurements;

/**
 * Prints results of the core of YCSB, one per line, fields separated by tabs:
 *
 * <ul>
 *   <li>results that follow from their arguments: hashes, keys, values, sums, property files;
 *   <li>"replay": the draws of each generator, and of the whole workload, after the thread's random number
 *       generator was set to a state that is printed too;
 *   <li>"histogram", "core": the frequency of each value among many random draws.
 * </ul>
 *
 * <p>crates/bench/examples/ycsb_core.rs reads them.
 */
public class Samples {
  static final int REPLAYED = 3_000;
  static final int DRAWN = 1_000_000;
  static final int OPERATIONS = 300_000;

  static final String[] GENERATORS = {
    "constant 17",
    "uniform 0 999",
    "uniform -7 5",
    "uniform 1000000 1000000",
    "sequential 5 904",
    "zipfian 0 999",
    "zipfian 1 100",
    "zipfian 5 6",
    "zipfian 0 99999 0.5",
    "scrambled 0 999",
    "scrambled 1000 1999",
    "latest 1000",
    "latest 1",
    "growing 100",
    "hotspot 0 999 0.2 0.8",
    "hotspot 100 199 0.5 0.1",
    "exponential 95 857.142857",
    "exponential 90 100",
    "histogram 8 10,0,30,60",
    "histogram 100 1,2,3,4,5,6,0,0",
    "histogram 5 64",
  };

  static final String OF_ALL =
      "readproportion=0.3,updateproportion=0.2,insertproportion=0.2,scanproportion=0.1,"
          + "readmodifywriteproportion=0.2";

  /** Besides A to F, which the reader gives. */
  static final String[] WORKLOADS = {
    OF_ALL + ",requestdistribution=uniform,readallfields=false",
    OF_ALL + ",requestdistribution=zipfian,writeallfields=true,insertorder=ordered",
    OF_ALL + ",requestdistribution=latest,scanlengthdistribution=zipfian,maxscanlength=50",
    OF_ALL + ",requestdistribution=hotspot,hotspotdatafraction=0.05,hotspotopnfraction=0.7",
    OF_ALL + ",requestdistribution=exponential,exponential.percentile=80,exponential.frac=0.3",
    OF_ALL + ",requestdistribution=sequential,fieldcount=3,fieldnameprefix=f,minscanlength=20",
    "recordcount=5000,insertstart=1000,insertcount=500,zeropadding=24,requestdistribution=zipfian",
    "recordcount=5000,insertstart=1000,insertcount=500,insertorder=ordered,zeropadding=12",
  };

  static final PrintStream OUT = System.out;
  static Field seed;

  static void seed(long state) throws Exception {
    seed.setLong(Thread.currentThread(), state);
  }

  static void say(Object... fields) {
    StringBuilder line = new StringBuilder();
    for (Object field : fields) {
      line.append(line.length() == 0 ? "" : "\t").append(field);
    }
    OUT.println(line);
  }

  static String bits(double number) {
    return Long.toUnsignedString(Double.doubleToRawLongBits(number));
  }

  static String hex(byte[] bytes) {
    StringBuilder text = new StringBuilder();
    for (byte one : bytes) {
      text.append(String.format("%02x", one));
    }
    return text.toString();
  }

  /** The thread's random numbers after a given state. */
  static void machine() throws Exception {
    ThreadLocalRandom random = ThreadLocalRandom.current();
    seed(0);
    random.nextInt();
    long step = seed.getLong(Thread.currentThread());
    seed(42);
    say("machine", step, random.nextLong(), random.nextInt(), bits(random.nextDouble()));
  }

  static void facts() throws Exception {
    say("constant", "theta", bits(ZipfianGenerator.ZIPFIAN_CONSTANT));
    say("constant", "theta", bits(ScrambledZipfianGenerator.USED_ZIPFIAN_CONSTANT));
    say("constant", "zeta", bits(ScrambledZipfianGenerator.ZETAN));
    say("constant", "items", ScrambledZipfianGenerator.ITEM_COUNT);
    Random numbers = new Random(1);
    for (int i = 0; i < 2_000; i++) {
      long number = i < 1_000 ? i : numbers.nextLong() >> numbers.nextInt(64);
      say("hash", number, Utils.hash(number));
    }
    for (String order : new String[] {"hashed", "ordered"}) {
      for (int padding : new int[] {1, 8, 19, 24}) {
        Properties properties = properties("insertorder=" + order + ",zeropadding=" + padding);
        Probe probe = Probe.of(properties);
        for (long number : new long[] {0, 1, 9, 10, 12345, 1L << 31, 1L << 40, Long.MAX_VALUE}) {
          say("key", order, padding, number, probe.key(number));
        }
      }
    }
    Method value =
        site.ycsb.workloads.CoreWorkload.class.getDeclaredMethod(
            "buildDeterministicValue", String.class, String.class);
    value.setAccessible(true);
    for (int length : new int[] {0, 1, 5, 23, 24, 25, 26, 40, 100, 1000, 4096}) {
      Probe probe = Probe.of(properties("dataintegrity=true,fieldlength=" + length));
      for (int number = 0; number < 20; number++) {
        String field = "field" + number % 10;
        String key = probe.key(number);
        say("value", length, number, number % 10, value.invoke(probe, key, field));
      }
    }
    for (int length : new int[] {0, 1, 2, 3, 4, 5, 6, 7, 11, 12, 100, 1000}) {
      seed(length);
      say("letters", length, hex(new RandomByteIterator(length).toArray()));
    }
  }

  static void sums() throws Exception {
    Method zeta =
        ZipfianGenerator.class.getDeclaredMethod("zetastatic", long.class, double.class);
    zeta.setAccessible(true);
    for (double theta : new double[] {0.99, 0.5, 0.2}) {
      for (long items : new long[] {0, 1, 2, 3, 10, 100, 1000, 100_000, 1_000_000}) {
        say("zeta", items, bits(theta), bits((Double) zeta.invoke(null, items, theta)));
      }
    }
    Method next = ZipfianGenerator.class.getDeclaredMethod("nextLong", long.class);
    next.setAccessible(true);
    for (long[] sizes : new long[][] {{100, 101}, {100, 5000}, {1000, 1000}, {1000, 10}}) {
      ZipfianGenerator grown = new ZipfianGenerator(sizes[0]);
      next.invoke(grown, sizes[1]);
      say("grown", sizes[0], sizes[1], field(grown, "zetan"), field(grown, "eta"));
    }
  }

  static String field(Object of, String name) throws Exception {
    Field field = of.getClass().getDeclaredField(name);
    field.setAccessible(true);
    return bits(field.getDouble(of));
  }

  /** Half of a surrogate pair becomes the replacement character, as it does in Rust. */
  static byte[] utf8(String text) throws Exception {
    byte[] replacement = {(byte) 0xEF, (byte) 0xBF, (byte) 0xBD};
    ByteBuffer bytes =
        StandardCharsets.UTF_8
            .newEncoder()
            .onMalformedInput(CodingErrorAction.REPLACE)
            .replaceWith(replacement)
            .encode(CharBuffer.wrap(text));
    byte[] all = new byte[bytes.remaining()];
    bytes.get(all);
    return all;
  }

  /** Short files of the letters that mean something in them. */
  static void files() {
    String[] parts = {
      "a", "b", "=", ":", " ", "\t", "\f", "\\", "\\", "\n", "\n", "\r", "\r\n", "#", "!", "\\u00e9",
      "\\u20AC", "\\ud83d\\ude00", "\u00e9", "\\t", "\\n", "\\q", "\\u12", "\\uFFFG", "c1",
    };
    Random random = new Random(2);
    for (int i = 0; i < 20_000; i++) {
      StringBuilder text = new StringBuilder();
      int length = 1 + random.nextInt(14);
      for (int at = 0; at < length; at++) {
        text.append(parts[random.nextInt(parts.length)]);
      }
      byte[] bytes = text.toString().getBytes(StandardCharsets.ISO_8859_1);
      Properties read = new Properties();
      String result;
      try {
        read.load(new ByteArrayInputStream(bytes));
        Map<String, String> sorted = new TreeMap<>();
        for (String name : read.stringPropertyNames()) {
          sorted.put(hex(utf8(name)), hex(utf8(read.getProperty(name))));
        }
        result = sorted.toString();
      } catch (Exception wrong) {
        result = "wrong";
      }
      say("file", hex(bytes), result);
    }
  }

  static NumberGenerator generator(String spec) throws Exception {
    String[] words = spec.split(" ");
    double[] of = new double[words.length - 1];
    for (int i = 0; i < of.length && !words[0].equals("histogram"); i++) {
      of[i] = Double.parseDouble(words[i + 1]);
    }
    switch (words[0]) {
      case "constant":
        return new ConstantIntegerGenerator((int) of[0]);
      case "uniform":
        return new UniformLongGenerator((long) of[0], (long) of[1]);
      case "sequential":
        return new SequentialGenerator((long) of[0], (long) of[1]);
      case "zipfian":
        double theta = of.length > 2 ? of[2] : ZipfianGenerator.ZIPFIAN_CONSTANT;
        return new ZipfianGenerator((long) of[0], (long) of[1], theta);
      case "scrambled":
        return new ScrambledZipfianGenerator((long) of[0], (long) of[1]);
      case "latest":
        return new SkewedLatestGenerator(new CounterGenerator((long) of[0]));
      case "growing":
        return growing((long) of[0]);
      case "hotspot":
        return new HotspotIntegerGenerator((long) of[0], (long) of[1], of[2], of[3]);
      case "exponential":
        return new ExponentialGenerator(of[0], of[1]);
      case "histogram":
        String[] counts = words[2].split(",");
        long[] buckets = new long[counts.length];
        for (int i = 0; i < counts.length; i++) {
          buckets[i] = Long.parseLong(counts[i]);
        }
        return new HistogramGenerator(buckets, Integer.parseInt(words[1]));
      default:
        throw new IllegalArgumentException(spec);
    }
  }

  /** The latest of records of which one is added after each draw. */
  static NumberGenerator growing(long first) {
    CounterGenerator counter = new CounterGenerator(first);
    SkewedLatestGenerator latest = new SkewedLatestGenerator(counter);
    return new NumberGenerator() {
      @Override
      public Number nextValue() {
        Number value = latest.nextValue();
        counter.nextValue();
        return value;
      }

      @Override
      public double mean() {
        return 0;
      }
    };
  }

  static void generators() throws Exception {
    for (String spec : GENERATORS) {
      NumberGenerator generator = generator(spec);
      StringBuilder values = new StringBuilder();
      seed(spec.hashCode());
      for (int i = 0; i < REPLAYED; i++) {
        values.append(i == 0 ? "" : " ").append(generator.nextValue().longValue());
      }
      say("replay", spec, spec.hashCode(), values);
    }
    // From here on, random numbers are what they are.
    seed(new java.security.SecureRandom().nextLong());
    for (String spec : GENERATORS) {
      if (spec.startsWith("growing") || spec.startsWith("sequential")) {
        continue;
      }
      NumberGenerator generator = generator(spec);
      Counts counts = new Counts();
      for (int i = 0; i < DRAWN; i++) {
        counts.add(generator.nextValue().longValue());
      }
      say("histogram", spec, counts);
    }
  }

  static class Counts {
    final TreeMap<Long, Long> of = new TreeMap<>();

    void add(long value) {
      of.merge(value, 1L, Long::sum);
    }

    @Override
    public String toString() {
      StringBuilder text = new StringBuilder();
      of.forEach((value, count) -> text.append(value).append(':').append(count).append(' '));
      return text.toString().trim();
    }
  }

  static Properties properties(String pairs) {
    Properties properties = new Properties();
    properties.setProperty("recordcount", "1000");
    properties.setProperty("operationcount", "4000");
    for (String pair : pairs.split(",")) {
      int at = pair.indexOf('=');
      properties.setProperty(pair.substring(0, at), pair.substring(at + 1));
    }
    return properties;
  }

  static String text(Properties properties) {
    return String.join(
        ",",
        properties.stringPropertyNames().stream()
            .map(name -> name + "=" + properties.getProperty(name))
            .sorted()
            .toArray(String[]::new));
  }

  /** All that the database is asked for. Values that can be verified take no random numbers. */
  static void replay(String pairs) throws Exception {
    Properties properties = properties(pairs + ",dataintegrity=true");
    Probe probe = Probe.of(properties);
    StringBuilder lines = new StringBuilder();
    Recorder.listener =
        (operation, key, length, fields) ->
            lines.append(operation).append(' ').append(key).append(' ').append(length)
                .append(' ').append(fields).append(';');
    Recorder recorder = new Recorder();
    seed(pairs.hashCode());
    for (int i = 0; i < REPLAYED; i++) {
      probe.doTransaction(recorder, null);
    }
    say("operations", text(properties), pairs.hashCode(), lines);
  }

  static void count(String pairs) throws Exception {
    Properties properties = properties(pairs + ",insertorder=ordered");
    Probe probe = Probe.of(properties);
    Counts[] counts = {new Counts(), new Counts(), new Counts(), new Counts()};
    long[] newest = {0};
    Recorder.listener =
        (operation, key, length, fields) -> {
          boolean second = operation.equals("update") && probe.kind == 4;
          if (!operation.equals("insert") && !second) {
            long record = Long.parseLong(key.substring(4));
            counts[1].add(record);
            counts[2].add(newest[0] - record);
          }
          if (!length.isEmpty()) {
            counts[3].add(Long.parseLong(length));
          }
        };
    Recorder recorder = new Recorder();
    for (int i = 0; i < OPERATIONS; i++) {
      newest[0] = probe.newest();
      probe.doTransaction(recorder, null);
      counts[0].add(probe.kind);
    }
    boolean grows = !properties.getProperty("insertproportion", "0").matches("0(\\.0*)?");
    boolean latest = "latest".equals(properties.getProperty("requestdistribution"));
    say("core", text(properties), "kinds", counts[0]);
    if (!grows) {
      say("core", text(properties), "records", counts[1]);
    } else if (latest) {
      say("core", text(properties), "ages", counts[2]);
    }
    if (!counts[3].of.isEmpty()) {
      say("core", text(properties), "lengths", counts[3]);
    }
  }

  /** What YCSB's measurements say of latencies: its histograms have three digits. */
  static void latencies() {
    Random random = new Random(7);
    for (int sample = 0; sample < 20; sample++) {
      org.HdrHistogram.Histogram histogram = new org.HdrHistogram.Histogram(3);
      StringBuilder values = new StringBuilder();
      for (int n = 0; n < 1 + sample * 97; n++) {
        // Of all sizes up to an hour, in nanoseconds.
        long value = (long) Math.exp(random.nextDouble() * Math.log(3.6e12));
        histogram.recordValue(value);
        values.append(values.length() == 0 ? "" : " ").append(value);
      }
      StringBuilder percentiles = new StringBuilder();
      for (double percent : new double[] {1, 10, 50, 90, 95, 99, 99.9, 99.99}) {
        long value = histogram.getValueAtPercentile(percent);
        percentiles.append(percentiles.length() == 0 ? "" : " ").append(percent / 100).append(':').append(value);
      }
      say("latencies", values, percentiles);
    }
  }

  /** Each argument is a workload's properties: a=b,c=d. */
  public static void main(String[] presets) throws Exception {
    seed = Thread.class.getDeclaredField("threadLocalRandomSeed");
    seed.setAccessible(true);
    ThreadLocalRandom.current();
    Measurements.setProperties(new Properties());
    machine();
    // What YCSB itself says is not meant for the reader.
    System.setOut(new PrintStream(PrintStream.nullOutputStream()));
    facts();
    sums();
    files();
    latencies();
    generators();
    for (String pairs : presets) {
      replay(pairs);
    }
    for (String pairs : WORKLOADS) {
      replay(pairs);
    }
    seed(new java.security.SecureRandom().nextLong());
    for (String pairs : presets) {
      count(pairs);
    }
    for (String pairs : WORKLOADS) {
      count(pairs);
    }
  }
}
