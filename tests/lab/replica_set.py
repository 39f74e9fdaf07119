"""A set of four over RDMA: three members with data and an arbiter. A client writes through the proxy, with w: majority.

While there is RDMA, each request to a member is a frame: the other members' messages and the client's requests. A
member of which nothing was heard for a while is reached over TCP. Then the link below RDMA goes down, while TCP between
processes of this host goes on: the set keeps its primary and its term, the client goes on without an error, and no
request is a frame any more.
"""

import contextlib
import signal
import subprocess
import sys
import time

import pymongo

from kauri_proxy import Proxy
from kauri_server import RDMA_ADDRESS, command
from kauri_set import NAME, ReplicaSet, until

WRITES = 50
# The last member is the arbiter.
SIZE = 4
DEVICE = "eth0"
# More than half of the time without a primary until an election: members end links over RDMA after that.
SILENCE_SECONDS = 4
# Only what hangs reaches this.
HANGING_SECONDS = 120
FLAGS = ["--cacheSizeGB", "0.1", "--rdmaPoolMB", "8", "--segmentSizeMB", "8", "--workers", "2"]
# A request to change the transport, and the questions that precede it or are asked over TCP.
NO_FRAMES = ("hello", "isMaster", "kauriUpgrade")
COMMANDS = ("insert", "replSetMessage", *NO_FRAMES)


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
        self.restart()

    def restart(self):
        self.looks = 0
        self.before = self.look()

    def look(self):
        status = command(self.port, {"serverStatus": 1, "$db": "admin"})
        self.looks += 1
        commands = {name: status["metrics"]["commands"][name]["total"] for name in COMMANDS}
        frames = {name: status["rdma"][name] for name in ("framesIn", "offered", "refused", "failed")}
        return {**commands, "requests": status["network"]["numRequests"], **frames}

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


def frames_still(counters):
    """What a member has counted, unless it got messages for a while and none was a frame. A frame has it begin anew."""
    spent = counters.spent()
    if spent["framesIn"] > 0:
        counters.restart()
    return None if spent["framesIn"] == 0 and spent["replSetMessage"] >= 4 * SIZE else spent


def after_silence(members):
    """The arbiter is silent as if its RDMA packets were lost. What it is sent after that goes over TCP."""
    lead = members.lead()
    host, arbiter = members.hosts[-1], members.servers[-1]
    arbiter.process.send_signal(signal.SIGSTOP)
    for server in members.servers[:-1]:
        eventually("the arbiter is silent", lambda port=server.port: silence_of(host, port) < SILENCE_SECONDS)
    arbiter.process.send_signal(signal.SIGCONT)
    counters = Counters(arbiter)
    eventually("the arbiter gets no frames", lambda: frames_still(counters))
    assert members.lead() == lead
    print(f"replica set: after its silence: {counters.spent()['replSetMessage']} messages and no frame", flush=True)


def silence_of(host, port):
    """How long the member at this port has not heard of the one at this host, in seconds."""
    status = command(port, {"replSetGetStatus": 1, "$db": "admin"})
    heard = next(m["lastHeartbeatRecv"] for m in status["members"] if m["name"] == host)
    return (status["date"] - heard).total_seconds()


def without_rdma(members, collection):
    """The link below goes down: all goes over TCP, with the same primary in the same term."""
    lead = members.lead()
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
        print(f"replica set: member {number}: no frames for {spent['requests']} requests without RDMA", flush=True)
    assert members.lead() == lead


def check_contents(members, expected):
    """Waits until each member with data has all documents."""
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
        after_silence(members)
        without_rdma(members, collection)
        check_contents(members, 3 * WRITES + 1)


def main():
    members = Set(FLAGS, SIZE)
    try:
        check(members)
        members.stop()
    finally:
        members.remove()


if __name__ == "__main__":
    sys.exit(main())
