"""Runs YCSB's own client with the Java binding against separate servers: its workloads A to F, and the tests of
Behaviour.java, over each transport.

run.py BUILT LIBRARIES [TRANSPORT…]: BUILT has the binding and the tests, see ycsb-java.sh; LIBRARIES has libkauri.so.
Without transports: tcp, unix and sharedMemory; rdma needs KAURI_RDMA_ADDRESS. The last line is the number of tests
that passed.

A workload passes on three conditions. YCSB counts exactly the planned operations, all without an error. Every record
is complete. The server counts the same operations, requests and sessions over this transport and no others.
"""

import functools
import json
import os
import pathlib
import re
import subprocess
import sys
import time

from kauri_server import RDMA_ADDRESS, Server, command

RECORDS = int(os.environ.get("YCSB_RECORDS", "1000"))
OPERATIONS = int(os.environ.get("YCSB_OPERATIONS", "2000"))
THREADS = 4
# In a load each thread has a batch that stays short, which is sent when it ends.
BATCH = 100
FIELDS = [f"field{i}" for i in range(10)]
FIELD_BYTES = 100
WORKLOADS = pathlib.Path(__file__).parents[3] / "ycsb" / "workloads"

# What each workload's operations must be.
KINDS = {
    "a": {"READ", "UPDATE"},
    "b": {"READ", "UPDATE"},
    "c": {"READ"},
    "d": {"READ", "INSERT"},
    "e": {"SCAN", "INSERT"},
    "f": {"READ", "UPDATE", "READ-MODIFY-WRITE"},
}
# As the property kauri.transport has them, if not by their own names.
PROPERTIES = {"sharedMemory": "shm"}
FRAMES = ["offered", "switched", "withdrawn", "refused", "failed", "framesIn", "framesOut"]


def check(what, got, want):
    if got != want:
        sys.exit(f"{what}: {got}, not {want}")


@functools.cache
def record(key):
    """What YCSB stores under a key when it is to check what it reads (`dataintegrity`)."""

    def value(field):
        # Strings are hashed as java.lang.String is, going on where the shorter one ended.
        text, hashed, at = f"{key}:{field}", 0, 0
        while len(text) < FIELD_BYTES:
            text += ":"
            for c in text[at:]:
                hashed = (31 * hashed + ord(c)) & 0xFFFFFFFF
            at = len(text)
            text += str(hashed - (hashed >> 31 << 32))
        return text[:FIELD_BYTES].encode()

    return {"_id": key, **{field: value(field) for field in FIELDS}}


class Runs:
    """The runs against one server over one transport."""

    def __init__(self, built, libraries, server, transport):
        self.server, self.transport = server, transport
        self.java = ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", f"-Djna.library.path={libraries}"]
        self.java += ["-cp", f"{built}/kauri-ycsb.jar:{built}/lib/*:{built}/tests"]
        self.url = server.address(transport) + "ycsb"
        self.property = PROPERTIES.get(transport, transport)

    def look(self):
        """The server's counters. This itself is two requests of two connections over TCP."""
        log = [json.loads(line) for line in command(self.server.port, {"getLog": "global", "$db": "admin"})["log"]]
        remotes = [line["attr"]["remote"] for line in log if line["msg"] == "Connection accepted"]
        status = command(self.server.port, {"serverStatus": 1, "$db": "admin"})
        return {
            "requests": status["network"]["numRequests"],
            **{name: status["opcounters"][name] for name in ("insert", "query", "update", "delete", "getmore")},
            **{f"{way} {name}": status[way][name] for way in ("sharedMemory", "rdma") for name in FRAMES},
            "unix": remotes.count("anonymous unix socket"),
            "device": sum(RDMA_ADDRESS is not None and r.startswith(f"{RDMA_ADDRESS}:") for r in remotes),
            "loopback": sum(r.startswith("127.0.0.1:") for r in remotes),
        }

    def counted(self, what, before, after, operations, requests):
        """Whether the server has counted these operations in so many requests, and the sessions that they take."""
        spent = {name: after[name] - before[name] for name in after}
        # Only its hello comes before a session's requests, and the one for the upgrade.
        fast = self.transport if f"{self.transport} switched" in spent else None
        door = {"tcp": "loopback", "rdma": "device"}.get(self.transport, "unix")
        want = dict.fromkeys(spent, 0)
        want |= operations
        want |= {"requests": requests + THREADS * (2 if fast else 1) + 2, "loopback": 2}
        want[door] += THREADS
        if fast:
            want |= {f"{fast} offered": THREADS, f"{fast} switched": THREADS}
            # A message that waits for room in the ring goes in more frames than one.
            for name, at_least in (("framesIn", requests), ("framesOut", requests)):
                frames = spent.pop(f"{fast} {name}")
                del want[f"{fast} {name}"]
                if not at_least <= frames <= 10 * at_least:
                    sys.exit(f"{what}: {frames} {name} for {requests} requests")
        check(f"{what}: the server's counters", spent, want)

    def ycsb(self, phase, workload, records, *properties):
        """Runs one phase; returns how many operations of each kind it did, without an error."""
        what = f"{self.transport}: {phase} {workload}"
        arguments = [f"kauri.url={self.url}", f"kauri.transport={self.property}", f"recordcount={records}"]
        arguments += [f"operationcount={OPERATIONS}", "dataintegrity=true", *properties]
        ran = subprocess.run(
            [*self.java, "site.ycsb.Client", f"-{phase}", "-threads", str(THREADS), "-db", "dev.kauri.ycsb.KauriClient"]
            + ["-P", WORKLOADS / f"workload{workload}"]
            + [word for argument in arguments for word in ("-p", argument)],
            capture_output=True,
            text=True,
            timeout=300,
        )
        said = [line for line in ran.stderr.splitlines() if line.startswith("kauri: ")]
        if ran.returncode or re.search("Exception|Error", ran.stdout + ran.stderr):
            sys.exit(f"{what}: status {ran.returncode}\n{ran.stdout}{ran.stderr}")
        check(f"{what}: what the binding says", said, THREADS * [f"kauri: connected over {self.transport}"])
        counts = {k: int(n) for k, n in re.findall(r"^\[([A-Z-]+)\], Operations, (\d+)", ran.stdout, re.M)}
        returned = dict.fromkeys(counts, 0)
        for kind, status, n in re.findall(r"^\[([A-Z-]+)\], Return=(\w+), (\d+)", ran.stdout, re.M):
            if status not in ("OK", "BATCHED_OK"):
                sys.exit(f"{what}: {n} {kind} ended with {status}\n{ran.stderr}")
            returned[kind] += int(n)
        check(f"{what}: cleanups", counts.pop("CLEANUP"), THREADS)
        # YCSB counts no results of these.
        for kind in ("CLEANUP", "READ-MODIFY-WRITE"):
            returned.pop(kind, None)
        check(f"{what}: what was verified", counts.pop("VERIFY", 0), counts.get("READ", 0))
        returned.pop("VERIFY", None)
        check(f"{what}: what went well", returned, {k: n for k, n in counts.items() if k in returned})
        return counts

    def whole(self, what, count):
        """Whether there are so many records, each with what YCSB stores under its key."""
        find = {"find": "usertable", "batchSize": 2 * count, "singleBatch": True, "$db": "ycsb"}
        found = command(self.server.port, find)["cursor"]["firstBatch"]
        check(f"{what}: records", len({one["_id"] for one in found}), count)
        check(f"{what}: records", len(found), count)
        for one in found:
            check(f"{what}: a record", one, record(one["_id"]))

    def load(self):
        before = self.look()
        counts = self.ycsb("load", "a", RECORDS, f"kauri.batchsize={BATCH}")
        after = self.look()
        what = f"{self.transport}: load"
        check(f"{what}: operations", counts, {"INSERT": RECORDS})
        batches = THREADS * -(-RECORDS // THREADS // BATCH)
        self.counted(what, before, after, {"insert": RECORDS}, batches)
        self.whole(what, RECORDS)

    def workload(self, workload, records):
        """Returns how many records there are after it."""
        began = time.monotonic()
        before = self.look()
        counts = self.ycsb("t", workload, records)
        after = self.look()
        what = f"{self.transport}: {workload}"
        check(f"{what}: kinds", set(counts), KINDS[workload])
        # A read-modify-write counts its read and its update as well.
        modified = counts.pop("READ-MODIFY-WRITE", 0)
        check(f"{what}: operations", sum(counts.values()) - modified, OPERATIONS)
        inserted = counts.get("INSERT", 0)
        operations = {
            "query": counts.get("READ", 0) + counts.get("SCAN", 0),
            "update": counts.get("UPDATE", 0),
            "insert": inserted,
        }
        self.counted(what, before, after, operations, sum(counts.values()))
        self.whole(what, records + inserted)
        print(f"ycsb {what}: {counts}, {time.monotonic() - began:.1f} s")
        return records + inserted

    def behaviour(self):
        """Runs the tests of the binding's own; returns how many have passed."""
        theirs = {"insert": "theirs", "documents": [record("stored elsewhere")], "$db": "ycsb"}
        check("an insert", command(self.server.port, theirs)["n"], 1)
        arguments = [self.url, self.property, str(self.server.process.pid)]
        ran = subprocess.run(
            [*self.java, "dev.kauri.ycsb.Behaviour", *arguments], capture_output=True, text=True, timeout=300
        )
        names = re.findall("^ok (.*)", ran.stdout, re.M)
        if ran.returncode or not names:
            sys.exit(f"{self.transport}: {ran.stdout}{ran.stderr}Behaviour ended with {ran.returncode}")
        return len(names)


def over(transport, built, libraries):
    server = Server(["--setParameter", "enableTestCommands=1"])
    try:
        runs = Runs(built, libraries, server, transport)
        runs.load()
        records = RECORDS
        for workload in KINDS:
            records = runs.workload(workload, records)
        passed = 1 + len(KINDS) + runs.behaviour()
        if server.stop() != 0:
            sys.exit("the server did not end in order:\n" + server.log_end())
        return passed
    finally:
        server.remove()


def main(built, libraries, *transports):
    print(sum(over(each, built, libraries) for each in transports or ("tcp", "unix", "sharedMemory")))


if __name__ == "__main__":
    main(*sys.argv[1:])
