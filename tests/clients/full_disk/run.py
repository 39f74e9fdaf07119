"""Fills a server's disk, kills the server with -9 and restarts it, several times.

On a full disk writers fail with OutOfDiskSpace and other operations continue. Acknowledged data stays readable, the
server starts again, and deletes make room. The last line is the number of checks.
"""

import pymongo
from kauri_server import Server
from pymongo.errors import BulkWriteError

FLAGS = ["--segmentSizeMB", "4", "--maxSizeGB", "0.06"]
BATCH = 500
OUT_OF_DISK_SPACE = 14031
passed = 0


def check(what, condition):
    global passed
    assert condition, what
    passed += 1


def fill(docs, first):
    """Inserts until there is no space; answers the id behind the last one that went in."""
    next_id = first
    while True:
        batch = [{"_id": next_id + n, "text": "x" * 1000} for n in range(BATCH)]
        try:
            docs.insert_many(batch)
        except BulkWriteError as error:
            told, went_in = error.details["writeErrors"], error.details["nInserted"]
            check("the error of a full disk", [e["code"] for e in told] == [OUT_OF_DISK_SPACE])
            check("who it is of", told[0]["index"] == went_in)
            return next_id + went_in
        next_id += BATCH
        assert next_id - first < 1_000_000, "the disk is never full"


def main():
    server = Server(FLAGS)
    kept, next_id = set(), 0
    for life in range(4):
        docs = pymongo.MongoClient(server.uri).test.docs
        found = {doc["_id"] for doc in docs.find({}, {"_id": 1})}
        check(f"what was acknowledged is there, life {life}", kept <= found)
        kept = found
        full_at = fill(docs, next_id)
        kept |= set(range(next_id, full_at))
        next_id = full_at + BATCH
        check("reads go on", docs.find_one({"_id": min(kept)}) is not None)
        doomed = sorted(kept)[::2]
        check("deletes make room", docs.delete_many({"_id": {"$in": doomed}}).deleted_count == len(doomed))
        kept -= set(doomed)
        # Killed once with room and once without.
        if life % 2 == 0:
            full_at = fill(docs, next_id)
            kept |= set(range(next_id, full_at))
            next_id = full_at + BATCH
        server.kill()
        server.start()
        docs = pymongo.MongoClient(server.uri).test.docs
        check("indexes are right", docs.database.command("validate", "docs")["valid"])
    check("it ends in order", server.stop() == 0)
    docs = None
    server.start()
    docs = pymongo.MongoClient(server.uri).test.docs
    check("all is there at last", kept <= {doc["_id"] for doc in docs.find({}, {"_id": 1})})
    server.stop()
    server.remove()
    print(passed)


if __name__ == "__main__":
    main()
