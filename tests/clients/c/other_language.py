"""Tests the C client from another language: Python by ctypes, with the BSON of its own driver.

other_language.py LIBRARY URI. The last line is the number of tests that passed.
"""

import ctypes
import sys
from ctypes import POINTER, Structure, byref, c_char, c_char_p, c_int32, c_size_t, c_uint32, c_void_p

import bson

OK, COMMAND = 0, 7


class Error(Structure):
    _fields_ = [
        ("status", c_int32),
        ("code", c_int32),
        ("code_name", c_char * 64),
        ("message", c_char * 440),
    ]


class Bson(Structure):
    _fields_ = [("data", c_void_p), ("length", c_size_t)]


class Sequence(Structure):
    _fields_ = [("name", c_char_p), ("documents", POINTER(Bson)), ("count", c_size_t)]


def load(path):
    library = ctypes.CDLL(path)
    library.kauri_version.restype = c_char_p
    library.kauri_transport_name.restype = c_char_p
    library.kauri_get_transport.argtypes = [c_void_p]
    library.kauri_close.argtypes = [c_void_p]
    library.kauri_connect.argtypes = [c_char_p, c_uint32, POINTER(c_void_p), POINTER(Error)]
    library.kauri_command.argtypes = [c_void_p, c_char_p, c_size_t, POINTER(Bson), POINTER(Error)]
    library.kauri_send.argtypes = [c_void_p, c_char_p, c_size_t, POINTER(Sequence), c_size_t]
    library.kauri_send.argtypes += [POINTER(Error)]
    library.kauri_receive.argtypes = [c_void_p, POINTER(Bson), POINTER(Error)]
    return library


class Client:
    def __init__(self, library, uri):
        self.library, self.connection = library, c_void_p()
        self.call(library.kauri_connect, uri.encode(), 0, byref(self.connection))

    def call(self, function, *arguments, expected=OK):
        error = Error()
        status = function(*arguments, byref(error))
        assert status == error.status == expected, (status, error.message)
        return error

    def command(self, command, expected=OK):
        sent, reply = bson.encode(command), Bson()
        function = self.library.kauri_command
        error = self.call(function, self.connection, sent, len(sent), byref(reply), expected=expected)
        return error, bson.decode(ctypes.string_at(reply.data, reply.length))

    def insert(self, collection, documents):
        raw = [bson.encode(document) for document in documents]
        views = (Bson * len(raw))(
            *(Bson(ctypes.cast(c_char_p(one), c_void_p).value, len(one)) for one in raw)
        )
        sequence = Sequence(b"documents", views, len(raw))
        sent, reply = bson.encode({"insert": collection, "$db": "test"}), Bson()
        send, receive = self.library.kauri_send, self.library.kauri_receive
        self.call(send, self.connection, sent, len(sent), byref(sequence), 1)
        self.call(receive, self.connection, byref(reply))
        return bson.decode(ctypes.string_at(reply.data, reply.length))


def main(path, uri):
    library = load(path)
    assert library.kauri_version().count(b".") == 2
    client = Client(library, uri)
    transport = library.kauri_get_transport(client.connection)
    assert library.kauri_transport_name(transport) == b"sharedMemory"
    print("ok connects")
    documents = [{"_id": n, "text": "x" * n, "real": n / 3} for n in range(50)]
    assert client.insert("c", documents)["n"] == 50
    _, reply = client.command({"find": "c", "sort": {"_id": 1}, "$db": "test"})
    assert reply["cursor"]["firstBatch"] == documents
    print("ok inserts and finds")
    error, reply = client.command({"nonsense": 1, "$db": "test"}, expected=COMMAND)
    assert (error.code, error.code_name) == (59, b"CommandNotFound")
    assert error.message.decode() == reply["errmsg"]
    print("ok tells errors")
    assert library.kauri_close(client.connection) == OK
    print(3)


if __name__ == "__main__":
    main(*sys.argv[1:])
