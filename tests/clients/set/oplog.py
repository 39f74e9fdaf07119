"""The oplog of a set: entries, ranges of times, cursors that follow it, mongosh's reports, mongodump --oplog.

Arguments: mongosh's program and the directory of the database tools. The last line is the number of checks.
"""

import json
import os
import pathlib
import subprocess
import sys
import threading

from bson import Int64, Timestamp
from pymongo import CursorType, MongoClient
from pymongo.errors import OperationFailure

from world import World, check, checks, wait_until

FLAGS = ["--oplogSize", "16", "--segmentSizeMB", "4", "--maxSizeGB", "2"]
mongosh, tools = sys.argv[1:3]


def last_entry(oplog):
    return next(oplog.find().sort("$natural", -1).limit(1))


def refused(action):
    try:
        action()
    except OperationFailure as error:
        return error.code
    return None


def write_all_kinds(client):
    """Writes of every kind to the database `kinds`; returns what the entries are to be."""
    db = client.kinds
    db.c.insert_one({"_id": 1, "a": 1})
    db.c.update_one({"_id": 1}, {"$set": {"a": 2}})
    db.c.replace_one({"_id": 1}, {"b": 3})
    db.c.insert_many([{"_id": n} for n in (2, 3)])
    db.c.delete_one({"_id": 1})
    db.c.create_index("a")
    db.c.drop_index("a_1")
    db.c.rename("d")
    db.d.drop()
    db.e.insert_one({"_id": 1})
    client.drop_database("kinds")
    return [
        ("c", "create"), ("i", {"_id": 1, "a": 1}), ("u", {"_id": 1, "a": 2}), ("u", {"_id": 1, "b": 3}),
        ("c", "applyOps"), ("d", {"_id": 1}), ("c", "createIndexes"), ("c", "dropIndexes"), ("c", "renameCollection"),
        ("c", "drop"), ("c", "create"), ("i", {"_id": 1}), ("c", "applyOps"),
    ]


def entries(world, client):
    oplog = client.local["oplog.rs"]
    start = last_entry(oplog)["ts"]
    expected = write_all_kinds(client)
    found = list(oplog.find({"ts": {"$gt": start}, "op": {"$ne": "n"}}))
    shown = [(entry["op"], next(iter(entry["o"])) if entry["op"] == "c" else entry["o"]) for entry in found]
    check("each write is an entry", shown == expected)
    check("an entry has MongoDB's fields", list(found[1]) == ["op", "ns", "ui", "o", "o2", "ts", "t", "v", "wall"])
    check("its numbers are long", isinstance(found[1]["t"], Int64) and found[1]["v"] == Int64(2))
    times = [entry["ts"] for entry in found]
    check("times ascend", times == sorted(set(times)))
    config = client.admin.command("replSetGetConfig")["config"]
    config["version"] += 1
    client.admin.command("replSetReconfig", config)
    messages = [entry["o"] for entry in oplog.find({"op": "n"})]
    check("a new term is an entry", messages[0] == {"msg": "new primary"})
    check("a configuration is an entry", {"msg": "Reconfig set", "version": config["version"]} in messages)
    end = last_entry(oplog)["ts"]

    def whole(member):
        return list(member.client.local["oplog.rs"].find({"ts": {"$lte": end}}))

    wait_until("all have the last entry", lambda: all(whole(m) and whole(m)[-1]["ts"] >= end for m in world.members))
    first, *others = map(whole, world.members)
    check("all members have the same entries", all(other == first for other in others))


def times_of_replies(client):
    with client.start_session() as session:
        client.times.c.insert_one({"_id": 1}, session=session)
        told = session.operation_time
    entry = client.local["oplog.rs"].find_one({"ns": "times.c", "op": "i"})
    check("an entry has the operationTime of its write", entry["ts"] == told)
    last = client.admin.command("hello")["lastWrite"]["opTime"]["ts"]
    check("the last write is the last entry", last <= last_entry(client.local["oplog.rs"])["ts"])


def ranges(client):
    oplog, numbers = client.local["oplog.rs"], client.ranges.numbers
    for number in range(100):
        numbers.insert_one({"_id": number})
    of = {entry["o"]["_id"]: entry["ts"] for entry in oplog.find({"ns": "ranges.numbers", "op": "i"})}

    def found(range_of_times, **more):
        return [e["o"].get("_id") for e in oplog.find({"ts": range_of_times, "ns": "ranges.numbers"}, **more)]

    check("after and before", found({"$gt": of[10], "$lt": of[14]}) == [11, 12, 13])
    check("from and to", found({"$gte": of[10], "$lte": of[12]}) == [10, 11, 12])
    check("backwards", found({"$gte": of[97]}, sort=[("$natural", -1)]) == [99, 98, 97])
    query = {"find": "oplog.rs", "filter": {"ts": {"$gte": of[40], "$lt": of[50]}}}
    examined = client.local.command("explain", query)["executionStats"]["totalDocsExamined"]
    check("a range is no scan", examined == 10)
    stages = [{"$match": {"ts": {"$gte": of[40], "$lt": of[50]}}}, {"$group": {"_id": "$op", "n": {"$sum": 1}}}]
    check("an aggregation over a range", list(oplog.aggregate(stages)) == [{"_id": "i", "n": 10}])


def follow(world, client):
    """A cursor on a secondary gets entries as they are committed, and goes on on another member after an election."""
    start = last_entry(client.local["oplog.rs"])["ts"]
    reader = next(member for member in world.members if not member.is_primary())

    def tail(member, after):
        tailable = CursorType.TAILABLE_AWAIT
        found = member.client.local["oplog.rs"].find({"ts": {"$gt": after}}, cursor_type=tailable, oplog_replay=True)
        return found.max_await_time_ms(1000)

    def take(cursor, number):
        entries = []

        def more():
            entry = next(cursor, None)
            if entry and entry["ns"] == "follow.c" and entry["op"] == "i":
                entries.append(entry)
            return len(entries) == number

        wait_until("the cursor has them", more)
        return entries

    cursor = tail(reader, start)
    check("nothing is new", next(cursor, None) is None and cursor.alive)
    writer = threading.Thread(target=lambda: [client.follow.c.insert_one({"_id": n}) for n in range(50)])
    writer.start()
    seen = take(cursor, 50)
    writer.join()
    check("a cursor follows", [entry["o"]["_id"] for entry in seen] == list(range(50)))
    before = last_entry(client.local["oplog.rs"])["t"]
    killed = world.wait_for_primary()
    killed.kill()
    client.follow.c.insert_one({"_id": 50})
    for member in world.members:
        if not member.is_running():
            member.start()
    wait_until("all members serve", world.all_serve)
    client.follow.c.insert_one({"_id": 51})
    names = [entry["ns"] for entry in killed.client.local["oplog.rs"].find({"o": {"_id": 1, "a": 1}})]
    check("a restarted member knows the name of a dropped collection", names == ["kinds.c"])
    other = next(member for member in world.members if member is not reader)
    entries = take(tail(other, seen[-1]["ts"]), 2)
    check("another member goes on after an election", [entry["o"]["_id"] for entry in entries] == [50, 51])
    check("in another term", entries[-1]["t"] > before)


def database(client):
    local = client.local
    check("the database is listed", "local" in client.list_database_names())
    check("its collections are listed", set(local.list_collection_names()) == {"oplog.rs", "system.replset"})
    stats = local.command("collStats", "oplog.rs")
    check("the oplog is capped", stats["capped"] and stats["maxSize"] == 16 << 20 and stats["count"] > 100)
    config = client.admin.command("replSetGetConfig")["config"]
    check("the configuration is a document", local["system.replset"].find_one() == config)
    codes = {refused(lambda: local["oplog.rs"].insert_one({})), refused(lambda: local["oplog.rs"].drop())}
    check("clients cannot write it", codes == {20})


def shell(world):
    code = """
      const info = db.getReplicationInfo();
      print(EJSON.stringify({maximum: info.configuredLogSizeMB, hours: info.timeDiffHours >= 0, used: info.usedMB > 0}));
      print(rs.printReplicationInfo()); print(rs.printSecondaryReplicationInfo());
    """
    command = ["node", mongosh, "--quiet", "--norc", world.uri, "--eval", code]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120)
    lines = ran.stdout.splitlines()
    check("mongosh measures the oplog", ran.returncode == 0 and json.loads(lines[0]) == {
        "maximum": 16, "hours": True, "used": True})
    shown = "\n".join(lines[1:])
    check("mongosh prints it", "actual oplog size" in shown and "oplog last event time" in shown)
    check("mongosh prints the secondaries", shown.count("source: ") == 2 and shown.count("replLag") == 2)


def dump(world, client):
    """What is written during a dump is in its oplog, and a restore applies it."""
    collection = client.dump.c
    collection.insert_many([{"_id": n, "n": 0} for n in range(2000)])
    stop = threading.Event()

    def change():
        number = 0
        while not stop.is_set():
            collection.update_one({"_id": number % 1000}, {"$inc": {"n": 1}})
            collection.delete_one({"_id": 1000 + number})
            collection.insert_one({"_id": 10_000 + number})
            number += 1

    writer = threading.Thread(target=change)
    writer.start()
    out = world.directory / "dump"
    # It begins and ends while writes go on.
    ran = subprocess.run([f"{tools}/mongodump", "--uri", world.uri, "--oplog", "--out", out], capture_output=True, text=True)
    stop.set()
    writer.join()
    assert ran.returncode == 0, ran.stderr
    check("mongodump writes the oplog", (out / "oplog.bson").stat().st_size > 0)
    expected = replayed(out)
    for name in set(client.list_database_names()) - {"admin", "config", "local"}:
        client.drop_database(name)
    arguments = [f"{tools}/mongorestore", "--uri", world.uri, "--oplogReplay", out]
    ran = subprocess.run(arguments, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    found = {doc["_id"]: doc for doc in client.dump.c.find()}
    check("mongorestore applies it", found == expected)


def replayed(out):
    """The documents of a dump's collection with its oplog applied."""
    import bson

    docs = {doc["_id"]: doc for doc in bson.decode_all((out / "dump" / "c.bson").read_bytes())}
    entries = bson.decode_all((out / "oplog.bson").read_bytes())
    flat = [op for entry in entries for op in (entry["o"].get("applyOps") or [entry])]
    for entry in (entry for entry in flat if entry["ns"] == "dump.c"):
        if entry["op"] == "d":
            docs.pop(entry["o"]["_id"], None)
        else:
            docs[entry["o"]["_id"]] = entry["o"]
    return docs


def purge(client):
    """A cursor that is left behind ends, and says why."""
    oplog = client.local["oplog.rs"]
    cursor, tail = oplog.find(batch_size=2), oplog.find(cursor_type=CursorType.TAILABLE, batch_size=2)
    first = next(cursor)["ts"]
    next(tail)

    def is_purged():
        client.purge.c.insert_many([{"text": "x" * 1000} for _ in range(1000)])
        return next(oplog.find().limit(1))["ts"] > first

    wait_until("old entries are purged", is_purged)
    check("a cursor that lost its place ends", refused(lambda: list(cursor)) == 136)
    # The driver does not raise the error of one that follows.
    check("so does one that follows", len(list(tail)) == 1 and not tail.alive)
    found = next(oplog.find({"ts": {"$gte": Timestamp(1, 1)}}))
    check("a reader begins with the first entry that is there", found["ts"] > first)


def main():
    with World(FLAGS) as world:
        world.initiate()
        client = MongoClient(world.uri)
        entries(world, client)
        times_of_replies(client)
        ranges(client)
        follow(world, client)
        database(client)
        shell(world)
        dump(world, client)
        purge(client)
    print(checks())


if __name__ == "__main__":
    main()
