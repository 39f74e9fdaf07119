import java.util.Properties;
import site.ycsb.DB;
import site.ycsb.workloads.CoreWorkload;

/** The workload with its protected members, and the kind of its last operation. */
public class Probe extends CoreWorkload {
  int kind;

  static Probe of(Properties properties) throws Exception {
    Probe probe = new Probe();
    probe.init(properties);
    return probe;
  }

  String key(long number) {
    return buildKeyName(number);
  }

  long newest() {
    return transactioninsertkeysequence.lastValue();
  }

  @Override
  public void doTransactionRead(DB db) {
    kind = 0;
    super.doTransactionRead(db);
  }

  @Override
  public void doTransactionUpdate(DB db) {
    kind = 1;
    super.doTransactionUpdate(db);
  }

  @Override
  public void doTransactionInsert(DB db) {
    kind = 2;
    super.doTransactionInsert(db);
  }

  @Override
  public void doTransactionScan(DB db) {
    kind = 3;
    super.doTransactionScan(db);
  }

  @Override
  public void doTransactionReadModifyWrite(DB db) {
    kind = 4;
    super.doTransactionReadModifyWrite(db);
  }
}
