"""The expected contents of a collection, from the writers' point of view.

Every document is derived from its id and a version, so that a torn or mixed one is detected. A change is announced
before it is sent and settled when it is acknowledged. An announced but unsettled change may be visible or not, but
only completely.
"""

import threading


def document(key, version, pad_bytes):
    return {
        "_id": key,
        "owner": key.split(":")[0],
        "version": version,
        "head": f"{key}/{version}",
        "pad": (key * pad_bytes)[:pad_bytes],
        "tail": f"{key}/{version}",
    }


# The same in the server: an update of many documents at once.
NEXT_VERSION = [
    {"$set": {"version": {"$add": ["$version", 1]}}},
    {"$set": {"head": {"$concat": ["$_id", "/", {"$toString": "$version"}]}}},
    {"$set": {"tail": "$head"}},
]
INDEXES = [
    {"key": {"version": 1}, "name": "version"},
    {"key": {"owner": 1, "version": -1}, "name": "owner_version"},
    {"key": {"head": 1}, "name": "head", "unique": True},
]


class Model:
    """The documents of one collection: key to version, None for one that is not there."""

    def __init__(self, pad_bytes):
        self.pad_bytes = pad_bytes
        # A writer with more documents only deletes.
        self.documents_each_max = 100_000
        self.versions = {}
        # Key to the versions that it may have besides, by changes without an answer.
        self.open = {}
        # Lists of keys that one ordered insert was to add, without an answer.
        self.batches = []
        self.acknowledged = 0
        self.lock = threading.Condition()

    def document(self, key, version):
        return document(key, version, self.pad_bytes)

    def announce(self, changes, ordered_insert=False):
        with self.lock:
            for key, version in changes.items():
                self.open[key] = version
            if ordered_insert:
                self.batches.append(list(changes))

    def settle(self, changes):
        with self.lock:
            for key, version in changes.items():
                del self.open[key]
                self.versions[key] = version
            self.batches = [b for b in self.batches if b[0] not in changes]
            self.acknowledged += 1
            self.lock.notify_all()

    def wait_for(self, acknowledged, seconds_max=60):
        """Waits until so many changes have been acknowledged."""
        with self.lock:
            if not self.lock.wait_for(lambda: self.acknowledged >= acknowledged, seconds_max):
                raise AssertionError("the writers make no progress")

    def compare(self, collection):
        """Compares with what is stored, and takes over what came of the changes without an answer."""
        found = {}
        for doc in collection.find():
            key = doc["_id"]
            assert doc == self.document(key, doc["version"]), f"not whole: {doc}"
            assert key not in found, f"{key} twice"
            found[key] = doc["version"]
        for key in self.versions.keys() | self.open.keys() | found.keys():
            got = found.get(key)
            allowed = [self.versions.get(key)]
            if key in self.open:
                allowed.append(self.open[key])
            assert got in allowed, f"{key} has version {got}, not one of {allowed}"
        for batch in self.batches:
            there = [key in found for key in batch]
            assert there == sorted(there, reverse=True), f"an ordered insert with gaps: {there}"
        for name in collection.index_information():
            by_index = {d["_id"]: d["version"] for d in collection.find().hint(name)}
            assert by_index == found, f"index {name} and the collection differ"
        report = collection.database.command("validate", collection.name, full=True)
        assert report["valid"], report
        assert report["nrecords"] == len(found)
        for name, keys in report["keysPerIndex"].items():
            assert keys == len(found), f"{name} has {keys} keys for {len(found)} documents"
        self.versions = found
        self.open.clear()
        self.batches.clear()
