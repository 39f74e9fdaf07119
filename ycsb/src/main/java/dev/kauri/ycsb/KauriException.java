package dev.kauri.ycsb;

import com.sun.jna.Native;
import org.bson.BsonDocument;
import org.bson.BsonInt32;
import org.bson.BsonString;
import site.ycsb.Status;

/** What went wrong, and what YCSB calls it. */
final class KauriException extends Exception {
  private static final long serialVersionUID = 1L;

  /** Not in the exception's serialized form, which nobody uses. */
  private final transient Status status;

  private KauriException(Status status, String message) {
    super(message);
    this.status = status;
  }

  /** A call of the library that failed. */
  static KauriException of(LibKauri.Error error) {
    String message = Native.toString(error.message, "UTF-8");
    if (error.status == LibKauri.COMMAND) {
      return ofServer(error.code, Native.toString(error.codeName, "UTF-8"), message);
    }
    boolean gone = error.status == LibKauri.IO || error.status == LibKauri.TIMED_OUT;
    return new KauriException(
        gone ? Status.SERVICE_UNAVAILABLE : Status.ERROR,
        LibKauri.kauri_status_name(error.status) + ": " + message);
  }

  /** An entry of writeErrors, or a writeConcernError. */
  static KauriException of(BsonDocument error) {
    return ofServer(
        error.getInt32("code", new BsonInt32(0)).getValue(),
        error.getString("codeName", new BsonString("write error")).getValue(),
        error.getString("errmsg", new BsonString("")).getValue());
  }

  private static KauriException ofServer(int code, String codeName, String message) {
    return new KauriException(Status.ERROR, codeName + " (" + code + "): " + message);
  }

  Status status() {
    return status;
  }
}
