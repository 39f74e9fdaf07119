"""A server whose control group has little memory. With too little it does not start and reports the amount it needs.
It survives data of four times the limit. Operations that add to full memory are rejected until there is room again.
"""

import os
import pathlib
import random
import stat
import sys
import time

import kauri_server
from pymongo import MongoClient
from pymongo.errors import BulkWriteError, OperationFailure

MB = 1 << 20
LIMIT = 160 * MB
DOCUMENT_BYTES = 128 << 10
# As promised; half of it shows the same where there is little time.
TIMES_THE_LIMIT = 2 if os.environ.get("LAB_BRIEF") else 4
DOCUMENTS = TIMES_THE_LIMIT * LIMIT // DOCUMENT_BYTES
EXCEEDED_MEMORY_LIMIT = 146
PATIENCE_SECONDS = 120
GROUP = pathlib.Path(os.environ["KAURI_GROUPS"]) / "kauri"
FLAGS = ["--persistentMemory", "off", "--rdma", "off"]


def limited(limit):
    """A program that starts the server in the group."""
    GROUP.mkdir(exist_ok=True)
    (GROUP / "memory.max").write_text(str(limit))
    program = pathlib.Path(os.environ["TMPDIR"]) / "kauri-limited"
    server = os.environ["KAURI"]
    program.write_text(f'#!/bin/sh\necho $$ >{GROUP}/cgroup.procs\nexec {server} "$@"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return str(program)


def events():
    lines = (GROUP / "memory.events").read_text().splitlines()
    return {name: int(count) for name, count in (line.split() for line in lines)}


def content(number):
    return number.to_bytes(8, "little") * (DOCUMENT_BYTES // 8)


def too_little():
    program = limited(64 * MB)
    try:
        kauri_server.Server(FLAGS, program)
    except Exception as error:
        text = str(error)
    else:
        raise AssertionError("it has started with 64 MB")
    assert "limits the server's memory to 64 MB, but the server needs at least 112 MB" in text, text


def more_than_the_limit(db):
    for begin in range(0, DOCUMENTS, 16):
        numbers = range(begin, min(begin + 16, DOCUMENTS))
        db.large.insert_many([{"_id": n, "x": content(n)} for n in numbers])
    for document in db.large.find():
        assert document["x"] == content(document["_id"]), document["_id"]
    assert db.large.count_documents({}) == DOCUMENTS


def status(db):
    return db.command("serverStatus")["pmlog"]


def fill(db):
    """Index keys of some 900 bytes, until there is no memory for more."""
    db.small.create_index("key")
    added = 0
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        rows = [{"key": random.randbytes(450).hex()} for _ in range(200)]
        try:
            added += len(db.small.insert_many(rows).inserted_ids)
        except BulkWriteError as error:
            codes = {failed["code"] for failed in error.details["writeErrors"]}
            assert codes == {EXCEEDED_MEMORY_LIMIT}, error.details
            return added + error.details["nInserted"]
    raise AssertionError(f"{added} documents, and none was refused: {status(db)['memory']}")


def accepted_again(db):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        try:
            return db.large.insert_one({"_id": "again"}).inserted_id
        except OperationFailure as error:
            assert error.code == EXCEEDED_MEMORY_LIMIT, error
    raise AssertionError(f"no write is accepted again: {status(db)['memory']}")


def main():
    too_little()
    server = kauri_server.Server(FLAGS, limited(LIMIT))
    db = MongoClient(server.uri).memory
    budget = status(db)["cache"]["budgetBytes"]
    assert budget == LIMIT // 2, budget
    more_than_the_limit(db)
    print(f"memory: {DOCUMENTS} documents of {DOCUMENT_BYTES >> 10} KB, limit {LIMIT >> 20} MB", flush=True)
    added = fill(db)
    now = status(db)
    assert now["memory"]["refused"] > 0 and now["cache"]["budgetBytes"] < budget, now["memory"]
    assert db.small.count_documents({}) == added
    # What there is can be read, and deleted, all the same.
    assert db.large.find_one({"_id": 7})["x"] == content(7)
    assert db.large.delete_one({"_id": 7}).deleted_count == 1
    db.small.drop()
    accepted_again(db)
    happened = events()
    assert (GROUP / "memory.max").read_text().strip() == str(LIMIT)
    assert happened["oom"] == 0 and happened["oom_kill"] == 0, happened
    print(f"memory: {added} small documents till it was full; events {happened}", flush=True)
    assert server.stop() == 0, server.log_end()
    log = server.log.read_text()
    assert "Memory limit nearly reached" in log and "Memory is available again" in log
    server.remove()


if __name__ == "__main__":
    sys.exit(main())
