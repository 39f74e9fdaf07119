"""Runs YCSB's own client with the Java binding against a replica set: the connection string has all hosts and the
set's name.

replica_set.py BUILT LIBRARIES, as run.py. The last line is the number of runs that passed.

As in run.py, YCSB counts exactly the planned operations, all without an error, and every record is complete. The
members together count the same operations: writes on the primary alone, reads where the read preference sends them.
In one run the primary steps down, and no operation is lost or made twice.
"""

import sys
import threading

from kauri_server import command
from kauri_set import ReplicaSet, until
from run import KINDS, OPERATIONS, RECORDS, Runs, check

COUNTED = ("insert", "query", "update", "delete")


class SetRuns(Runs):
    """The runs against one set."""

    def __init__(self, built, libraries, members):
        super().__init__(built, libraries, members.servers[0], "tcp")
        self.members = members
        self.url = self.plain_url = members.uri.replace("/?", "/ycsb?")

    def look(self):
        """The operations that each member has counted, the primary first."""
        primary = self.members.primary
        # Records are read from it.
        self.server = primary
        others = [server for server in self.members.servers if server is not primary]

        def counted(server):
            status = command(server.port, {"serverStatus": 1, "$db": "admin"})
            return {name: status["opcounters"][name] for name in COUNTED}

        return [counted(server) for server in [primary, *others]]

    def counted(self, what, before, after, operations, _requests):
        spent = [{name: now[name] - then[name] for name in COUNTED} for then, now in zip(before, after)]
        want = dict.fromkeys(COUNTED, 0) | operations
        reads_elsewhere = self.url != self.plain_url
        on_primary = want | {"query": 0} if reads_elsewhere else want
        check(f"{what}: the primary's counters", spent[0], on_primary)
        elsewhere = {name: sum(of[name] for of in spent[1:]) for name in COUNTED}
        reads = want["query"] if reads_elsewhere else 0
        check(f"{what}: the secondaries' counters", elsewhere, dict.fromkeys(COUNTED, 0) | {"query": reads})

    def read_secondaries(self):
        self.url = self.plain_url + "&readPreference=secondary"
        self.workload("c", RECORDS)
        self.url = self.plain_url

    def step_down(self):
        """Workload A, under which the primary steps down once it has counted an update."""
        before = self.look()
        primary = self.server
        errors = []

        def watch():
            while self.updates(primary) == before[0]["update"]:
                pass
            reply = command(primary.port, {"replSetStepDown": 30, "$db": "admin"})
            if reply["ok"] != 1:
                errors.append(reply)

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        counts = self.ycsb("t", "a", RECORDS)
        watcher.join(60)
        check("step-down: it was done", (errors, watcher.is_alive()), ([], False))
        for server in self.members.servers:
            until(server.port, lambda hello: "primary" in hello)
        check("step-down: the same member is the primary", self.members.primary is primary, False)
        check("step-down: kinds", set(counts), KINDS["a"])
        check("step-down: operations", sum(counts.values()), OPERATIONS)
        self.look()
        check("step-down: the new primary has counted updates", self.updates(self.server) > 0, True)
        self.whole("step-down", RECORDS)
        print(f"ycsb step-down: {counts}")

    @staticmethod
    def updates(server):
        return command(server.port, {"serverStatus": 1, "$db": "admin"})["opcounters"]["update"]


def main(built, libraries):
    members = ReplicaSet()
    try:
        runs = SetRuns(built, libraries, members)
        runs.load()
        runs.workload("a", RECORDS)
        runs.workload("f", RECORDS)
        runs.read_secondaries()
        runs.step_down()
        members.stop()
    finally:
        members.remove()
    print(5)


if __name__ == "__main__":
    main(*sys.argv[1:])
