"""Clients that append to lists and read them, at a rate, and write down what they have seen.

appends.py URI FILE --number N --threads T --rate R --began NS: a process of several clients that ends with SIGTERM. The
file has the history (see crates/consistency/src/history.rs). The last line of the output counts outcomes, as JSON.

Besides those there is a client for each member that talks to no other one, whatever the set says of it: one that is
the primary no longer, and does not know yet, is asked all the same.

A list is the field `list` of a document. Its key is its `_id`. Every two seconds there are new keys, so that lists stay
short; old ones are read now and then.
"""

import argparse
import collections
import json
import random
import signal
import threading
import time

import pymongo
from pymongo import MongoClient, ReadPreference, WriteConcern
from pymongo.errors import DuplicateKeyError, PyMongoError
from pymongo.read_concern import ReadConcern

DATABASE, COLLECTION = "lists", "lists"
KEYS_AT_ONCE = 16
KEYS_LAST_NS = 2_000_000_000
# A member that is stopped answers nothing, so waiting must end.
OPTIONS = {
    "serverSelectionTimeoutMS": 15_000,
    "connectTimeoutMS": 1_500,
    "socketTimeoutMS": 4_000,
    "heartbeatFrequencyMS": 1_000,
    "retryWrites": True,
    "retryReads": True,
}
NOT_WRITABLE_PRIMARY = 10107
# The unique value that a document has already, so that no other one may have it.
TAKEN = "taken"


class Client:
    """One client: it sends its next operation after the reply to the last one."""

    def __init__(self, number, mongo, rate, began, rng, stopped):
        self.number = number
        self.rate = rate
        self.began = began
        self.rng = rng
        self.stopped = stopped
        self.mongo = mongo
        self.values = 0
        self.lines = []
        self.counts = collections.Counter()
        majority = WriteConcern("majority")
        at = lambda **options: mongo[DATABASE].get_collection(COLLECTION, **options)
        self.writes = at(write_concern=majority)
        self.writes_one = at(write_concern=WriteConcern(1))
        self.linearizable = at(read_concern=ReadConcern("linearizable"))
        self.primary_reads = at(read_concern=ReadConcern("majority"))
        self.secondary_reads = at(
            read_concern=ReadConcern("majority"), read_preference=ReadPreference.SECONDARY_PREFERRED
        )
        # Some clients keep to causally consistent sessions, so their reads of secondaries see what they know.
        self.session = mongo.start_session(causal_consistency=True) if number % 4 == 3 else None
        self.operations = [(self.push, 30), (self.push_and_get, 15), (self.push_refused, 1)]
        if self.session:
            self.operations += [(self.read_secondary, 30), (self.read_primary, 5)]
        else:
            self.operations += [(self.push_one, 6), (self.read_linearizable, 34), (self.read_secondary, 10)]
            self.operations += [(self.read_primary, 4)]

    def run(self):
        ways, weights = zip(*self.operations)
        due = time.monotonic()
        while not self.stopped.is_set():
            due += self.rng.expovariate(self.rate)
            # What was missed while there was no primary is not made up for.
            due = max(due, time.monotonic() - 0.05)
            time.sleep(max(0, due - time.monotonic()))
            self.rng.choices(ways, weights)[0]()

    def key(self):
        age = (time.monotonic_ns() - self.began) // KEYS_LAST_NS
        return age * KEYS_AT_ONCE + self.rng.randrange(KEYS_AT_ONCE)

    def key_to_read(self):
        newest = self.key()
        return self.rng.randrange(newest + 1) if self.rng.random() < 0.1 else newest

    def value(self):
        self.values += 1
        return self.number * 10_000_000 + self.values

    def note(self, sent, end, order, *steps):
        self.lines.append(f"{self.number} {sent} {end} {order} {' '.join(steps)}")

    def failed(self, way, error):
        code = code_of(error)
        self.counts[f"{way} failed: {type(error).__name__} {code or ''}".rstrip()] += 1

    def append(self, way, key, value, send):
        """Notes an append by what `send` answers: the list that it has read, or None if it has read none."""
        sent = time.monotonic_ns()
        try:
            found = send()
        except DuplicateKeyError as error:
            # Only two upserts of one key at a time, and the refused ones, have this: nothing is written.
            self.note(sent, "-", "realtime", f"a{key}={value}")
            self.failed(way, error)
        except PyMongoError as error:
            self.note(sent, "?", "realtime", f"a{key}={value}")
            self.failed(way, error)
        else:
            read = [] if found is None else [f"r{key}={joined(found)}"]
            self.note(sent, time.monotonic_ns(), "realtime", *read, f"a{key}={value}")
            self.counts[way] += 1

    def push_to(self, collection, way):
        key, value = self.key(), self.value()

        def send():
            update = {"$push": {"list": value}}
            result = collection.update_one({"_id": key}, update, upsert=True, session=self.session)
            assert result.matched_count + (result.upserted_id is not None) == 1, result

        self.append(way, key, value, send)

    def push(self):
        self.push_to(self.writes, "push")

    def push_one(self):
        self.push_to(self.writes_one, "push w:1")

    def push_and_get(self):
        key, value = self.key(), self.value()

        def send():
            update = {"$push": {"list": value}}
            before = self.writes.find_one_and_update({"_id": key}, update, upsert=True, session=self.session)
            return list_of(before)

        self.append("findAndModify", key, value, send)

    def push_refused(self):
        """Appends, and violates a unique index."""
        key, value = self.key(), self.value()
        update = {"$push": {"list": value}, "$set": {"unique": TAKEN}}
        sent = time.monotonic_ns()
        # Whatever it is answered, it cannot be done.
        self.note(sent, "-", "realtime", f"a{key}={value}")
        try:
            self.writes.update_one({"_id": key}, update, upsert=True, session=self.session)
        except DuplicateKeyError:
            self.counts["refused"] += 1
        except PyMongoError as error:
            self.failed("refused", error)

    def read(self, way, collection, order):
        key = self.key_to_read()
        sent = time.monotonic_ns()
        try:
            found = list_of(collection.find_one({"_id": key}, session=self.session))
        except PyMongoError as error:
            self.failed(way, error)
        else:
            self.note(sent, time.monotonic_ns(), order, f"r{key}={joined(found)}")
            self.counts[way] += 1

    def read_linearizable(self):
        self.read("read linearizable", self.linearizable, "realtime")

    def read_primary(self):
        self.read("read majority", self.primary_reads, "session" if self.session else "data")

    def read_secondary(self):
        self.read("read secondary", self.secondary_reads, "session" if self.session else "data")


class Direct(Client):
    """A client of one member, which asks it for what only a primary may do."""

    PAUSE_SECONDS = 0.1

    def __init__(self, number, mongo, rate, began, rng, stopped):
        super().__init__(number, mongo, rate, began, rng, stopped)
        self.session = None
        self.operations = [(self.push, 40), (self.push_one, 10), (self.read_linearizable, 50)]

    def append(self, way, key, value, send):
        """Appends; a member that is no primary has done nothing."""
        sent = time.monotonic_ns()
        try:
            send()
        except PyMongoError as error:
            refused = code_of(error) == NOT_WRITABLE_PRIMARY
            self.note(sent, "-" if refused else "?", "realtime", f"a{key}={value}")
            self.failed(way, error)
        else:
            self.note(sent, time.monotonic_ns(), "realtime", f"a{key}={value}")
            self.counts[f"direct {way}"] += 1

    def failed(self, way, error):
        if code_of(error) != NOT_WRITABLE_PRIMARY:
            super().failed(f"direct {way}", error)
        time.sleep(self.PAUSE_SECONDS)


def code_of(error):
    """The server's code of an error, if it has one."""
    return getattr(error, "code", None) or (getattr(error, "details", None) or {}).get("code")


def list_of(document):
    return document["list"] if document else []


def joined(values):
    return ",".join(map(str, values))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("uri")
    parser.add_argument("file")
    parser.add_argument("--number", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--rate", type=float, required=True, help="operations a second, of all clients here")
    parser.add_argument("--began", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    options = parser.parse_args()
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    mongo = MongoClient(options.uri, **OPTIONS)
    clients = []
    for thread in range(options.threads):
        number = options.number * options.threads + thread
        rng = random.Random(options.seed * 1000 + number)
        rate = options.rate / options.threads
        clients.append(Client(number, mongo, rate, options.began, rng, stopped))
    # The set's clients have the numbers below a thousand.
    for member, host in enumerate(pymongo.uri_parser.parse_uri(options.uri)["nodelist"]):
        one = MongoClient(*host, directConnection=True, **{**OPTIONS, "retryWrites": False, "retryReads": False})
        number = 1000 + options.number * 100 + member
        rng = random.Random(options.seed * 1000 + number)
        clients.append(Direct(number, one, options.rate / options.threads, options.began, rng, stopped))
    failures = []

    def run(client):
        try:
            client.run()
        except BaseException as error:
            failures.append(f"client {client.number}: {error!r}")
            raise

    threads = [threading.Thread(target=run, args=(client,)) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with open(options.file, "w") as file:
        for client in clients:
            file.writelines(line + "\n" for line in client.lines)
    print(json.dumps(dict(sum((client.counts for client in clients), collections.Counter()))))
    assert not failures, failures


if __name__ == "__main__":
    main()
