package dev.kauri.ycsb;

import com.sun.jna.Library;
import com.sun.jna.Native;
import com.sun.jna.NativeLibrary;
import com.sun.jna.Pointer;
import com.sun.jna.Structure;
import java.util.Map;

/**
 * The functions of kauri.h that the binding uses, under their names there. A size_t is a long: Kauri runs on machines
 * of 64 bits. Loading this class loads the library.
 */
final class LibKauri {
  /** Values of kauri_status_t. */
  static final int OK = 0;

  static final int IO = 4;
  static final int TIMED_OUT = 5;
  static final int COMMAND = 7;

  /** kauri_bson_t: where a document lies, and its length. */
  static final int VIEW_BYTES = 16;

  static final int VIEW_LENGTH = 8;

  /** kauri_sequence_t: its name, its documents' views, and how many. */
  static final int SEQUENCE_BYTES = 24;

  static final int SEQUENCE_VIEWS = 8;
  static final int SEQUENCE_COUNT = 16;

  static {
    Map<String, ?> options = Map.of(Library.OPTION_STRING_ENCODING, "UTF-8");
    Native.register(LibKauri.class, NativeLibrary.getInstance("kauri", options));
  }

  /** kauri_error_t. */
  @Structure.FieldOrder({"status", "code", "codeName", "message"})
  public static final class Error extends Structure {
    public int status;
    public int code;
    public byte[] codeName = new byte[64];
    public byte[] message = new byte[440];
  }

  private LibKauri() {}

  static native int kauri_connect(String uri, int timeoutMs, Pointer connection, Pointer error);

  static native int kauri_close(Pointer connection);

  static native int kauri_get_transport(Pointer connection);

  static native String kauri_transport_name(int transport);

  static native String kauri_get_fallback(Pointer connection);

  static native String kauri_status_name(int status);

  static native int kauri_command(
      Pointer connection, Pointer command, long length, Pointer reply, Pointer error);

  static native int kauri_send(
      Pointer connection,
      Pointer command,
      long length,
      Pointer sequences,
      long sequenceCount,
      Pointer error);

  static native int kauri_receive(Pointer connection, Pointer reply, Pointer error);
}
