package dev.kauri.ycsb;

import com.sun.jna.Memory;
import com.sun.jna.Native;
import com.sun.jna.Pointer;
import java.nio.ByteBuffer;
import java.util.List;
import org.bson.BsonBinaryReader;
import org.bson.BsonBinaryWriter;
import org.bson.BsonDocument;
import org.bson.codecs.BsonDocumentCodec;
import org.bson.codecs.DecoderContext;
import org.bson.codecs.EncoderContext;
import org.bson.io.BasicOutputBuffer;

/**
 * A session with a server through libkauri, for one thread at a time.
 *
 * <p>Ownership: requests go out from memory of this object; replies are the library's, and decoded before the next
 * call. What the library gives is the connection alone, and that is given back once, by {@link #close}.
 */
final class Connection implements AutoCloseable {
  private static final BsonDocumentCodec CODEC = new BsonDocumentCodec();
  private static final long REQUEST_BYTES_MIN = 64 * 1024;

  private final LibKauri.Error error = new LibKauri.Error();
  private final Memory reply = new Memory(LibKauri.VIEW_BYTES);
  private Memory request = new Memory(REQUEST_BYTES_MIN);

  /** Null when closed. */
  private Pointer handle;

  Connection(String uri) throws KauriException {
    try (Memory place = new Memory(Native.POINTER_SIZE)) {
      check(LibKauri.kauri_connect(uri, 0, place, error.getPointer()));
      handle = place.getPointer(0);
    }
  }

  /** What it goes through, as the library calls it. */
  String transport() {
    return LibKauri.kauri_transport_name(LibKauri.kauri_get_transport(handle));
  }

  /** Why it goes through nothing faster; null if there is nothing to say. */
  String fallback() {
    return LibKauri.kauri_get_fallback(handle);
  }

  static byte[] encode(BsonDocument document) {
    BasicOutputBuffer out = new BasicOutputBuffer();
    try (BsonBinaryWriter writer = new BsonBinaryWriter(out)) {
      CODEC.encode(writer, document, EncoderContext.builder().build());
    }
    return out.toByteArray();
  }

  /** Runs a command; answers the reply. */
  BsonDocument command(BsonDocument command) throws KauriException {
    byte[] bytes = encode(command);
    makeRoom(bytes.length);
    request.write(0, bytes, 0, bytes.length);
    check(LibKauri.kauri_command(handle, request, bytes.length, reply, error.getPointer()));
    return received();
  }

  /**
   * Runs a command whose documents lie beside it as a sequence of this name: with those there is no bound of 16 MB on
   * the whole. In the request's memory are the sequence, its views, its name, the command and the documents.
   */
  BsonDocument command(BsonDocument command, String name, List<byte[]> documents)
      throws KauriException {
    byte[] head = encode(command);
    byte[] text = Native.toByteArray(name, "UTF-8");
    long nameAt = LibKauri.SEQUENCE_BYTES + (long) LibKauri.VIEW_BYTES * documents.size();
    long commandAt = nameAt + text.length;
    long at = commandAt + head.length;
    makeRoom(at + documents.stream().mapToLong(document -> document.length).sum());
    long start = Pointer.nativeValue(request);
    request.setLong(0, start + nameAt);
    request.setLong(LibKauri.SEQUENCE_VIEWS, start + LibKauri.SEQUENCE_BYTES);
    request.setLong(LibKauri.SEQUENCE_COUNT, documents.size());
    request.write(nameAt, text, 0, text.length);
    request.write(commandAt, head, 0, head.length);
    long view = LibKauri.SEQUENCE_BYTES;
    for (byte[] document : documents) {
      request.setLong(view, start + at);
      request.setLong(view + LibKauri.VIEW_LENGTH, document.length);
      request.write(at, document, 0, document.length);
      view += LibKauri.VIEW_BYTES;
      at += document.length;
    }
    Pointer sent = request.share(commandAt);
    check(LibKauri.kauri_send(handle, sent, head.length, request, 1, error.getPointer()));
    check(LibKauri.kauri_receive(handle, reply, error.getPointer()));
    return received();
  }

  /** Gives everything back. A second time there is nothing to do. */
  @Override
  public void close() {
    if (handle != null) {
      LibKauri.kauri_close(handle);
      handle = null;
      reply.close();
      request.close();
    }
  }

  private void makeRoom(long bytes) {
    if (request.size() < bytes) {
      request.close();
      request = new Memory(2 * bytes);
    }
  }

  private void check(int status) throws KauriException {
    if (status != LibKauri.OK) {
      error.read();
      throw KauriException.of(error);
    }
  }

  private BsonDocument received() {
    long length = reply.getLong(LibKauri.VIEW_LENGTH);
    ByteBuffer bytes = reply.getPointer(0).getByteBuffer(0, length);
    try (BsonBinaryReader reader = new BsonBinaryReader(bytes)) {
      return CODEC.decode(reader, DecoderContext.builder().build());
    }
  }
}
