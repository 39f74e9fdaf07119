"""A server with a mapped log: it reports this, keeps acknowledged data, and has the configured latency. And a server
that is idle after a large collection was dropped: it returns the memory of the indexes to the kernel.

The last line is the number of checks.
"""

import json
import pathlib
import random
import sys
import time

import lives
from pymongo import MongoClient
from pymongo.errors import OperationFailure

from kauri_server import Server

DEATHS = 8
GIVE_BACK_SECONDS_MAX = 20
checks = 0


def check(condition, what):
    global checks
    assert condition, what
    checks += 1


def medium(client):
    return client.admin.command("serverStatus")["pmlog"]["medium"]


def log_lines(server, number):
    lines = (json.loads(line) for line in server.log.read_text().splitlines())
    return [line for line in lines if line.get("id") == number]


def reports_its_medium():
    server = Server(("--persistentMemory", "simulated", "--pmReadLatencyNanos", "7"))
    client = MongoClient(server.uri)
    found = medium(client)
    check(found["kind"] == "simulatedDax" and not found["mapSync"], found)
    check("no write for certain" in found["survivesPowerLoss"], found)
    check(found["addedLatencyNanos"] == {"read": 7, "line": 0, "fence": 0}, found)
    [line] = log_lines(server, 6_200_021)
    check(line["s"] == "W" and line["attr"]["kind"] == "simulatedDax", line)
    docs = client.test.docs
    docs.insert_many({"_id": n, "text": "x" * 1000} for n in range(1000))
    client.admin.command("setParameter", 1, pmFenceLatencyNanos=20_000_000)
    start = time.monotonic()
    docs.insert_one({"_id": "slow"})
    check(time.monotonic() - start >= 0.02, "the fence took no longer")
    client.admin.command("setParameter", 1, pmFenceLatencyNanos=0)
    client.admin.command("setParameter", 1, pmReadLatencyNanos=20_000_000)
    start = time.monotonic()
    check(docs.find_one({"_id": 5})["text"] == "x" * 1000, "the document")
    check(time.monotonic() - start >= 0.02, "the read took no longer")
    client.admin.command("setParameter", 1, pmReadLatencyNanos=0)
    got = client.admin.command("getParameter", 1, pmLineLatencyNanos=1)
    check(got["pmLineLatencyNanos"] == 0, got)
    try:
        client.admin.command("setParameter", 1, pmLineLatencyNanos=-1)
        check(False, "a latency below 0 was taken")
    except OperationFailure as error:
        check(error.code == 2, error)
    log = client.admin.command("serverStatus")["pmlog"]["log"]
    check(log["durable"] == log["written"] == log["lastCommit"], log)
    # The same directory as a file.
    server.kill()
    server.flags = ["--persistentMemory", "off"]
    server.start()
    client = MongoClient(server.uri)
    found = medium(client)
    check(found["kind"] == "file" and found["durableBy"] == "fdatasync", found)
    check("addedLatencyNanos" not in found, found)
    [line] = log_lines(server, 6_200_020)
    check(line["s"] == "I" and line["attr"]["kind"] == "file", line)
    check(client.test.docs.count_documents({}) == 1001, "documents")
    check(server.stop() == 0, server.log_end())
    server.remove()


class Writes(lives.Writes):
    """Killed among writes to memory."""

    flags = (*lives.Writes.flags, "--persistentMemory", "simulated")


def keeps_acknowledged_writes():
    life = Writes("memory")
    while life.under_way < DEATHS:
        assert life.deaths < 4 * DEATHS, f"only {life.under_way} of {life.deaths} deaths count"
        life.cycle()
        assert medium(life.client)["kind"] == "simulatedDax"
        # Not all of them come in the middle of something.
    check(life.under_way == DEATHS, life.under_way)
    life.end()


def anonymous_mb(pid):
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    [line] = (line for line in status.splitlines() if line.startswith("RssAnon:"))
    return int(line.split()[1]) / 1024


def gives_memory_back():
    # A small cache, so that most of its memory are indexes.
    server = Server(("--persistentMemory", "off", "--cacheSizeGB", "0.02"))
    client = MongoClient(server.uri)
    docs = client.test.docs
    docs.create_index("key")
    for _ in range(60):
        docs.insert_many({"key": random.randbytes(450).hex()} for _ in range(1000))
    most = anonymous_mb(server.process.pid)
    docs.drop()
    # The server gets no requests while it is idle.
    client.close()
    deadline = time.monotonic() + GIVE_BACK_SECONDS_MAX
    while (now := anonymous_mb(server.process.pid)) > most - 30 and time.monotonic() < deadline:
        time.sleep(0.1)
    check(now <= most - 30, f"{most:.0f} MB before 60 MB of an index were dropped, {now:.0f} MB since")
    check(server.stop() == 0, server.log_end())
    server.remove()


if __name__ == "__main__":
    gives_memory_back()
    reports_its_medium()
    keeps_acknowledged_writes()
    print(checks)
    sys.exit(0)
