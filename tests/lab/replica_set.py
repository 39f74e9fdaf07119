"""A set of four over RDMA: three members with data and an arbiter. A client writes through the proxy, with w: majority.

While there is RDMA, each request to a member is a frame: the other members' messages and the client's requests. Then the
link below RDMA goes down, while TCP between processes of this host goes on: the set keeps its primary and its term, the
client goes on without an error, and no request is a frame any more.
"""

import contextlib
import subprocess
import sys
import time

import pymongo

from kauri_proxy import Proxy
from kauri_server import RDMA_ADDRESS, command
from kauri_set import NAME, ReplicaSet, until

WRITES = 100
# The last member is the arbiter.
SIZE = 4
DEVICE = "eth0"
# Only what hangs reaches this.
HANGING_SECONDS = 120
FLAGS = ["--cacheSizeGB", "0.1", "--rdmaPoolMB", "8", "--segmentSizeMB", "8", "--workers", "2"]
# A request to change the transport, and the questions that precede it or are asked over TCP.
NO_FRAMES = ("hello", "isMaster", "kauriUpgrade")


class Set(ReplicaSet):
    """Its members know each other by the address of the RDMA device, where none is on the same host to another."""

    @property
    def hosts(self):
        return [f"{RDMA_ADDRESS}:{server.port}" for server in self.servers]

    def initiate(self):
        members = [{"_id": n, "host": host} for n, host in enumerate(self.hosts)]
        members[-1]["arbiterOnly"] = True
        # Emulation alone is no reason for an election.
        config = {"_id": NAME, "members": members, "settings": {"electionTimeoutMillis": 5000}}
        reply = command(self.servers[0].port, {"replSetInitiate": config, "$db": "admin"})
        assert reply["ok"] == 1, reply
        roles = ("isWritablePrimary", "secondary", "arbiterOnly")
        for server in self.servers:
            until(server.port, lambda hello: "primary" in hello and any(hello.get(role) for role in roles))

    def lead(self):
        """The primary and the term, as each member has them."""
        statuses = [command(server.port, {"replSetGetStatus": 1, "$db": "admin"}) for server in self.servers]
        terms = {status["term"] for status in statuses}
        primaries = {m["name"] for status in statuses for m in status["members"] if m["stateStr"] == "PRIMARY"}
        assert len(terms) == len(primaries) == 1, statuses
        return self.hosts.index(primaries.pop()), terms.pop()


class Counters:
    """A member's counters from here on. A look is one request, over TCP."""

    def __init__(self, server):
        self.port = server.port
        self.looks = 0
        self.before = self.look()

    def look(self):
        status = command(self.port, {"serverStatus": 1, "$db": "admin"})
        self.looks += 1
        commands = {name: of["total"] for name, of in status["metrics"]["commands"].items() if name != "<UNKNOWN>"}
        frames = {name: status["rdma"][name] for name in ("framesIn", "offered", "refused", "failed")}
        return {"requests": status["network"]["numRequests"], **commands, **frames}

    def spent(self):
        """What came since, without the looks."""
        after = self.look()
        spent = {name: after[name] - before for name, before in self.before.items()}
        # The last look counts itself or does not yet.
        return {**spent, "requests": spent["requests"] - self.looks + 1}


def eventually(what, condition):
    """Waits until the condition answers nothing: until then what is not so yet."""
    ends = time.monotonic() + HANGING_SECONDS
    while lacks := condition():
        if time.monotonic() > ends:
            raise AssertionError(f"{what}: {lacks}")
        time.sleep(0.05)


def write(collection, first):
    for number in range(first, first + WRITES):
        assert collection.insert_one({"_id": number, "x": "x" * 100}).acknowledged


def wrong_with_rdma(counters):
    """What a member has counted, unless each request was a frame. One that came just now may be counted in part."""
    spent = counters.spent()
    others = sum(spent[name] for name in NO_FRAMES)
    is_equal = spent["requests"] - others <= spent["framesIn"] <= spent["requests"]
    is_sound = spent["replSetMessage"] > 0 and spent["refused"] == spent["failed"] == 0
    return None if is_equal and is_sound else spent


def with_rdma(members, collection):
    """All that its client and the others ask of a member goes over RDMA."""
    primary, _ = members.lead()
    counters = [Counters(server) for server in members.servers]
    write(collection, 0)
    for number, of in enumerate(counters):
        eventually(f"member {number}: a frame for each request", lambda of=of: wrong_with_rdma(of))
        spent = of.spent()
        assert spent["insert"] == (WRITES if number == primary else 0), spent
        print(f"replica set: member {number}: {spent['framesIn']} frames for {spent['requests']} requests, "
              f"{spent['replSetMessage']} of them members'", flush=True)


def without_rdma(members, collection):
    """The same over TCP, with the same primary in the same term."""
    lead = members.lead()
    frames = [Counters(server) for server in members.servers]
    subprocess.run(["ip", "link", "set", DEVICE, "down"], check=True)
    write(collection, WRITES)
    assert members.lead() == lead
    # From here on nothing comes by a session that is left over.
    counters = [Counters(server) for server in members.servers]
    write(collection, 2 * WRITES)
    for number, of in enumerate(counters):
        eventually(f"member {number}: messages", lambda of=of: of.spent()["replSetMessage"] < SIZE)
        spent = of.spent()
        assert spent["framesIn"] == 0, spent
        print(f"replica set: member {number}: no frames for {spent['requests']} requests, "
              f"{frames[number].spent()['framesIn']} since the link went down", flush=True)
    assert members.lead() == lead


def check_contents(members):
    """Waits until each member with data has all documents."""
    expected = 3 * WRITES + 1
    count = {"count": "c", "$db": "lab", "$readPreference": {"mode": "secondaryPreferred"}}
    for number, server in enumerate(members.servers[:-1]):
        lacks = lambda port=server.port: expected - command(port, count)["n"]
        eventually(f"member {number}: documents are missing", lacks)


def check(members):
    # The client goes before the members, which it would wait for.
    with contextlib.ExitStack() as stack:
        proxy = Proxy(members.uri)
        stack.callback(proxy.stop)
        client = pymongo.MongoClient(proxy.uri(), serverSelectionTimeoutMS=HANGING_SECONDS * 1000)
        stack.callback(client.close)
        collection = client.lab.get_collection("c", write_concern=pymongo.WriteConcern("majority"))
        # Now all sessions are there.
        collection.insert_one({"_id": -1})
        with_rdma(members, collection)
        without_rdma(members, collection)
        check_contents(members)


def main():
    members = Set(FLAGS, SIZE)
    try:
        check(members)
        members.stop()
    finally:
        members.remove()


if __name__ == "__main__":
    sys.exit(main())
