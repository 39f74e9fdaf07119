"""pymongo against a running server (KAURI_URI): messages of the maximum size, compressed messages, and files.

KAURI_GRIDFS_MB sets the size of the file. The last line is the number of tests.
"""

import hashlib
import os
import random
import sys
import unittest

import gridfs
from pymongo import CursorType, MongoClient, monitoring
from pymongo.errors import WriteError

URI = os.environ["KAURI_URI"]
FILE_BYTES = int(os.environ.get("KAURI_GRIDFS_MB", "128")) << 20
DOCUMENT_BYTES_MAX = 16 << 20
MESSAGE_BYTES_MAX = 48_000_000


class Commands(monitoring.CommandListener):
    """The names of the commands that were sent, and how many documents each insert took along."""

    def __init__(self):
        self.sent = []

    def started(self, event):
        self.sent.append((event.command_name, len(event.command.get("documents", []))))

    def succeeded(self, event):
        pass

    def failed(self, event):
        pass


class Case(unittest.TestCase):
    def setUp(self):
        self.commands = Commands()
        self.client = MongoClient(URI, serverSelectionTimeoutMS=30_000, event_listeners=[self.commands])
        self.db = self.client["large_" + self._testMethodName]
        self.client.drop_database(self.db.name)
        self.c = self.db.c
        self.random = random.Random(self._testMethodName)

    def tearDown(self):
        self.client.drop_database(self.db.name)
        self.client.close()

    def document(self, id, bytes):
        """Exactly so many bytes of BSON."""
        # Length; `_id`, an int32; what `x` has before its bytes; end.
        return {"_id": id, "x": self.random.randbytes(bytes - 4 - 9 - 3 - 5 - 1)}

    def counted(self):
        return self.client.admin.command("serverStatus")["network"]


class Messages(Case):
    def test_a_request_of_48_million_bytes_is_one_message(self):
        documents = [self.document(i, n) for i, n in enumerate([DOCUMENT_BYTES_MAX, DOCUMENT_BYTES_MAX])]
        # What the message has besides its documents is below 1 KB.
        documents.append(self.document(2, MESSAGE_BYTES_MAX - 2 * DOCUMENT_BYTES_MAX - 1024))
        before = self.counted()["bytesIn"]
        self.commands.sent.clear()
        self.c.insert_many(documents)
        self.assertEqual(self.commands.sent, [("insert", 3)])
        came = self.counted()["bytesIn"] - before
        self.assertGreater(came, MESSAGE_BYTES_MAX - 1024)
        # One byte too many is an error, and the connection continues.
        with self.assertRaises(WriteError) as caught:
            self.c.insert_one(self.document(3, DOCUMENT_BYTES_MAX + 1))
        self.assertEqual(caught.exception.code, 10334)
        for document in documents:
            self.assertTrue(self.c.find_one({"_id": document["_id"]}) == document, document["_id"])

    def test_replies_of_16_mb_follow_one_request(self):
        """An exhaust cursor: three batches, as large as a batch may be, for a single getMore."""
        documents = [self.document(i, DOCUMENT_BYTES_MAX) for i in range(4)]
        for document in documents:
            self.c.insert_one(document)
        before = self.counted()
        cursor = self.c.find({}, cursor_type=CursorType.EXHAUST, batch_size=1, sort={"_id": 1})
        for document in documents:
            self.assertTrue(next(cursor) == document, document["_id"])
        self.assertIsNone(next(cursor, None))
        after = self.counted()
        self.assertGreater(after["bytesOut"] - before["bytesOut"], 4 * DOCUMENT_BYTES_MAX)

    def test_an_aggregation_gives_a_document_of_16_mb(self):
        self.c.insert_one(self.document(0, DOCUMENT_BYTES_MAX))
        (got,) = self.c.aggregate([{"$match": {}}, {"$project": {"x": "$x", "_id": 1}}])
        self.assertEqual(got, self.c.find_one({}))

    def test_half_a_million_bytes_in_small_documents(self):
        documents = [{"_id": i, "x": "x" * (i % 997)} for i in range(1000)]
        self.c.insert_many(documents)
        self.assertEqual(list(self.c.find({}, sort={"_id": 1}, batch_size=300)), documents)


class Compressors(Case):
    def round_trip(self, compressor):
        text = {"_id": 0, "x": "compressible " * 100_000}
        noise = self.document(1, 1 << 20)
        with MongoClient(URI, serverSelectionTimeoutMS=30_000, compressors=compressor) as client:
            c = client[self.db.name].c
            before = self.counted()
            c.insert_one(text)
            self.assertEqual(c.find_one({"_id": 0}), text)
            after = self.counted()
            # Of 1.3 MB, and the connection's handshakes.
            for count in ["physicalBytesIn", "physicalBytesOut"]:
                self.assertLess(after[count] - before[count], 300_000)
            c.insert_one(noise)
            self.assertEqual(c.find_one({"_id": 1})["x"], noise["x"])

    def test_snappy(self):
        self.round_trip("snappy")

    def test_zlib(self):
        self.round_trip("zlib")

    def test_zstd(self):
        self.round_trip("zstd")


class Files(Case):
    def test_a_large_file_comes_back_as_it_was(self):
        bucket = gridfs.GridFSBucket(self.db, chunk_size_bytes=1 << 20)
        written, left = hashlib.sha256(), FILE_BYTES
        with bucket.open_upload_stream("file") as upload:
            while left:
                piece = self.random.randbytes(min(left, 4 << 20))
                written.update(piece)
                upload.write(piece)
                left -= len(piece)
            id = upload._id
        read, length = hashlib.sha256(), 0
        with bucket.open_download_stream(id) as download:
            while piece := download.read(4 << 20):
                read.update(piece)
                length += len(piece)
        self.assertEqual(length, FILE_BYTES)
        self.assertEqual(read.hexdigest(), written.hexdigest())


if __name__ == "__main__":
    result = unittest.main(exit=False, argv=sys.argv).result
    if not result.wasSuccessful() or result.skipped:
        sys.exit(1)
    print(result.testsRun)
