"""The lives of a data directory: each life is killed many times, in one kind of situation.

A life returns the number of kills, and the number of kills during its situation.
"""

import contextlib
import random
import signal
import subprocess
import threading
import time

import pymongo
from pymongo import ASCENDING, DESCENDING, MongoClient
from pymongo.errors import ConnectionFailure

from kauri_server import Server
from model import INDEXES, Model, document
from ring import BYTES_MAX, DOCUMENTS_MAX, RingModel, document as ring_document
from writers import Inserter, Writer


class Life:
    """A server, its client, and the checks after each of its deaths."""

    flags = ()

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.server = Server(self.flags)
        self.deaths = self.under_way = 0
        self.connect()
        self.prepare()

    def connect(self):
        self.client = MongoClient(self.server.uri, serverSelectionTimeoutMS=20_000)
        self.db = self.client.life

    def leave(self):
        """Lets go of the client of a server that is gone."""
        # Not closed: it would wait for the server to say goodbye.
        self.client = self.db = None

    def writers_db(self):
        """The same for writers, which do not wait for a dead server to restart."""
        client = MongoClient(self.server.uri, serverSelectionTimeoutMS=200)
        with pymongo.timeout(20):
            client.admin.command("ping")
        return client.life

    def die(self, under_way):
        self.server.kill()
        self.deaths += 1
        self.under_way += under_way

    def rise(self):
        """Starts the server again, sometimes after a death in the middle of its start."""
        self.leave()
        if self.rng.random() < 0.2:
            self.die_in_recovery()
        self.server.start()
        self.connect()

    def die_in_recovery(self):
        starting = self.server.spawn()
        with contextlib.suppress(subprocess.TimeoutExpired):
            starting.wait(self.rng.uniform(0, 0.05))
        starting.kill()
        starting.wait()

    def end(self):
        """Ends the server in order, and looks once more at what it kept."""
        assert self.server.stop() == 0, self.server.log_end()
        self.leave()
        self.server.start()
        self.connect()
        self.check()
        self.client.close()
        self.server.remove()

    def prepare(self):
        raise NotImplementedError

    def cycle(self):
        """Lives, dies, rises and checks."""
        raise NotImplementedError

    def check(self):
        raise NotImplementedError


class Writes(Life):
    """Killed while writers are at work, with requests that have no answer yet."""

    writers = 3
    writer = Writer
    pad_bytes = 200
    flags = ("--segmentSizeMB", "1")

    def prepare(self):
        self.model = Model(self.pad_bytes)
        self.db.command("createIndexes", "docs", indexes=INDEXES)
        self.seed_documents()

    def seed_documents(self):
        pass

    def cycle(self):
        docs = self.writers_db().docs
        writers = [self.writer(f"w{i}", docs, self.model, self.rng) for i in range(self.writers)]
        start = self.model.acknowledged
        for writer in writers:
            writer.start()
        self.live(start)
        at_work = [writer.is_alive() for writer in writers]
        self.die(bool(self.model.open))
        for writer in writers:
            writer.join()
            assert writer.failure is None, writer.failure
        assert all(at_work), "a writer gave up while the server was alive"
        self.rise()
        self.check()

    def live(self, start):
        self.model.wait_for(start + self.rng.randint(1, 60))

    def check(self):
        self.model.compare(self.db.docs)


class Moves(Writes):
    """Killed while the cleaner moves records out of segments that are mostly dead."""

    writers = 2
    pad_bytes = 1500
    # Less than three times what is live: the cleaner is always at work.
    flags = ("--segmentSizeMB", "1", "--maxSizeGB", "0.02")

    def seed_documents(self):
        self.model.documents_each_max = 1500
        for owner in ("w0", "w1", "cold"):
            keys = [f"{owner}:{-n}" for n in range(1, 1200)]
            self.db.docs.insert_many(document(k, 0, self.pad_bytes) for k in keys)
            self.model.versions.update(dict.fromkeys(keys, 0))

    def moved(self):
        return self.client.admin.command("serverStatus")["pmlog"]["cleaner"]["movedRecords"]

    def live(self, start):
        """Returns right after the cleaner was seen at work."""
        ends = time.monotonic() + 60
        before = self.moved()
        while time.monotonic() < ends:
            after = self.moved()
            if after > before and before > 0:
                return
            before = after
        raise AssertionError("the cleaner moves nothing")


class Ring(Writes):
    """Killed while writers insert into a full capped collection."""

    writer = Inserter

    def prepare(self):
        self.model = RingModel()
        self.db.create_collection("docs", capped=True, size=BYTES_MAX, max=DOCUMENTS_MAX)
        serials = self.model.announce("filler", 2 * DOCUMENTS_MAX)
        self.db.docs.insert_many(ring_document(serial) for serial in serials)
        self.model.settle(serials)


class Acknowledged(Life):
    """Killed right after an answer, of a write or of a change of the catalog."""

    def prepare(self):
        self.model = Model(100)
        self.serial = 0
        # Name of each collection to its documents' ids and its indexes.
        self.expected = {}

    def step(self):
        name = self.rng.choice(sorted(self.expected)) if self.expected else None
        way = self.rng.choice(["create", "insert", "insert", "index", "index", "rename", "drop"])
        if name is None or way == "create":
            self.serial += 1
            name = f"c{self.serial}"
            self.db.create_collection(name)
            self.expected[name] = (set(), {"_id_"})
        elif way == "insert":
            first = len(self.expected[name][0])
            ids = range(first, first + self.rng.randint(1, 50))
            self.db[name].insert_many({"_id": i, "a": -i, "b": [i, i + 1]} for i in ids)
            self.expected[name][0].update(ids)
        elif way == "index":
            field = self.rng.choice("abc")
            indexes = self.expected[name][1]
            if f"{field}_1" in indexes:
                self.db[name].drop_index(f"{field}_1")
                indexes.remove(f"{field}_1")
            else:
                indexes.add(self.db[name].create_index([(field, ASCENDING)]))
        elif way == "rename":
            self.serial += 1
            self.db[name].rename(f"r{self.serial}")
            self.expected[f"r{self.serial}"] = self.expected.pop(name)
        else:
            self.db.drop_collection(name)
            del self.expected[name]

    def cycle(self):
        for _ in range(self.rng.randint(1, 12)):
            self.step()
        self.die(True)
        self.rise()
        self.check()

    def check(self):
        assert set(self.db.list_collection_names()) == set(self.expected)
        for name, (ids, indexes) in self.expected.items():
            c = self.db[name]
            assert {d["_id"] for d in c.find()} == ids, name
            assert set(c.index_information()) == indexes, (name, c.index_information(), indexes)
            assert self.db.command("validate", name)["valid"], name


class Builds(Life):
    """Killed while indexes are built over a collection that is written to."""

    documents = 20_000

    def prepare(self):
        self.sum = 0
        self.db.docs.insert_many(self.document(i) for i in range(self.documents))
        began = time.monotonic()
        self.build(self.db)
        # How long a build takes among the writes of a life, as it is known so far.
        self.build_seconds = time.monotonic() - began

    def document(self, i):
        return {"_id": i, "a": f"{i * 7919 % 100_003:08}", "b": [i % 10, i % 13 + 20], "n": 1}

    def build(self, db):
        db.docs.drop_indexes()
        indexes = [
            {"key": {"a": 1}, "name": "a", "unique": True},
            {"key": {"b": 1, "a": DESCENDING}, "name": "b_a"},
        ]
        db.command("createIndexes", "docs", indexes=indexes)

    def cycle(self):
        db = self.writers_db()
        answered = threading.Event()
        written = []

        def build():
            with contextlib.suppress(ConnectionFailure):
                self.build(db)
                answered.set()

        def write():
            with contextlib.suppress(ConnectionFailure):
                for i in range(1_000_000):
                    db.docs.update_one({"_id": i % self.documents}, {"$inc": {"n": 1}})
                    written.append(1)

        self.db.docs.drop_indexes()
        threads = [threading.Thread(target=f, daemon=True) for f in (build, write)]
        for thread in threads:
            thread.start()
        began = time.monotonic()
        answered.wait(self.rng.uniform(0.1, 0.9) * self.build_seconds)
        building = not answered.is_set()
        if building:
            self.build_seconds *= 1.1
        else:
            self.build_seconds = min(self.build_seconds, time.monotonic() - began)
        self.die(building)
        for thread in threads:
            thread.join()
        self.sum += len(written)
        self.rise()
        if not building:
            assert set(self.db.docs.index_information()) == {"_id_", "a", "b_a"}
        self.check()

    def check(self):
        docs = self.db.docs
        indexes = set(docs.index_information())
        assert indexes in ({"_id_"}, {"_id_", "a", "b_a"}), indexes
        report = self.db.command("validate", "docs", full=True)
        assert report["valid"] and set(report["keysPerIndex"]) == indexes, report
        for name in indexes:
            counted = docs.count_documents({}, hint=name)
            assert counted == self.documents, f"{counted} documents by {name}"
        [total] = docs.aggregate([{"$group": {"_id": None, "n": {"$sum": "$n"}}}])
        # One write had no answer.
        written = total["n"] - self.documents
        assert written in (self.sum, self.sum + 1), f"{written} increments, {self.sum} acknowledged"
        self.sum = written
