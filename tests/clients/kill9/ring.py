"""The expected contents of a full capped collection: the newest documents in insertion order.

Serials are assigned consecutively, so they also represent time. The acknowledgement of a serial is recorded with the
next free serial at that moment. An insert acknowledged before another one began precedes it in the collection.
"""

import math
import threading

import bson

DOCUMENTS_MAX = 150
BYTES_MAX = 128 * 1024
# The documents' paddings in turn: of short ones as many as there may be, of long ones as much.
PADS_BYTES = (100, 1500)
SERIALS_A_PAD = 300


def document(serial):
    pad = PADS_BYTES[serial // SERIALS_A_PAD % 2] + serial % 7
    return {"_id": serial, "head": f"<{serial}>", "pad": (f"{serial}." * pad)[:pad], "tail": f"<{serial}>"}


DOCUMENT_BYTES_MAX = max(len(bson.encode(document(n))) for n in range(2 * SERIALS_A_PAD))


class RingModel:
    def __init__(self):
        self.next = 0
        # What there was after the last death.
        self.before = []
        # Writer to the serials that it was given since then.
        self.given = {}
        # Serial to when it was acknowledged.
        self.ended = {}
        self.acknowledged = 0
        self.lock = threading.Condition()

    @property
    def open(self):
        """The inserts without an answer."""
        with self.lock:
            return {s for serials in self.given.values() for s in serials} - self.ended.keys()

    def announce(self, owner, count):
        with self.lock:
            serials = range(self.next, self.next + count)
            self.next += count
            self.given.setdefault(owner, []).extend(serials)
            return serials

    def settle(self, serials):
        with self.lock:
            self.ended.update(dict.fromkeys(serials, self.next))
            self.acknowledged += 1
            self.lock.notify_all()

    def wait_for(self, acknowledged, seconds_max=60):
        """Waits until so many inserts have been acknowledged."""
        with self.lock:
            if not self.lock.wait_for(lambda: self.acknowledged >= acknowledged, seconds_max):
                raise AssertionError("the writers make no progress")

    def compare(self, collection):
        """Compares with what is stored, and takes over what came of the inserts without an answer."""
        found = list(collection.find())
        for way in (1, -1):
            assert list(collection.find().sort("$natural", way)) == found[::way], f"natural order {way}"
        for doc in found:
            assert doc == document(doc["_id"]), f"not whole: {doc}"
        serials = [doc["_id"] for doc in found]
        size = sum(len(bson.encode(doc)) for doc in found)
        extent = f"{len(found)} documents of {size} bytes"
        assert len(found) <= DOCUMENTS_MAX and size <= BYTES_MAX, extent
        assert len(found) == DOCUMENTS_MAX or size + DOCUMENT_BYTES_MAX > BYTES_MAX, f"{extent}: too few"
        self.compare_order(serials)
        report = collection.database.command("validate", collection.name, full=True)
        assert report["valid"] and report["nrecords"] == len(found), report
        assert report["keysPerIndex"] == {"_id_": len(found)}, report
        self.before = serials
        self.given.clear()
        self.ended = dict.fromkeys(serials, self.next)

    def compare_order(self, serials):
        there = set(serials)
        assert len(there) == len(serials), f"twice: {serials}"
        # Of what there was there is the end, of each writer's a part without a gap, both in their order.
        for owner, given in {"before": self.before, **self.given}.items():
            mine = set(given)
            kept = [s for s in serials if s in mine]
            first = given.index(kept[0]) if kept else 0
            last = len(given) if owner == "before" and kept else first + len(kept)
            assert kept == given[first:last], f"{owner}: {kept} of {given}"
            there -= mine
        assert not there, f"nobody inserted {there}"
        # The removed documents are older than the remaining ones.
        oldest = min(self.ended.get(s, math.inf) for s in serials)
        gone = [s for s in self.ended.keys() - set(serials) if s >= oldest]
        assert not gone, f"acknowledged and gone: {gone}, there: {serials}"
        end = math.inf
        for serial in reversed(serials):
            assert serial < end, f"{serial} lies before an older one: {serials}"
            end = min(end, self.ended.get(serial, math.inf))
