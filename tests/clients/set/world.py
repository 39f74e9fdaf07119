"""Three servers that are members of a replica set, each in a network namespace of its own, and what happens to them.

Runs in namespaces of its own (see set_namespaces in lib.sh): what is made here ends with the process. The
clients' namespace has a bridge with a link to each member. A cut link loses packets without a sign: the sender has a
wrong hardware address for the receiver.
"""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time

import pymongo
from pymongo.errors import PyMongoError

SIZE = 3
PORT = 27017
NAME = "rs0"
# Only what hangs reaches this.
HANGING_SECONDS = 120
FLAGS = ["--nounixsocket", "--rdma", "off", "--cacheSizeGB", "0.25", "--logappend", "--replSet", NAME]
# No machine has this address, so the bridge's ports drop what is sent there.
NOBODY = "02:00:00:00:00:99"


def ip(*arguments):
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


def wait_until(what, condition, seconds_max=HANGING_SECONDS):
    """Returns the condition's value once it is true."""
    ends = time.monotonic() + seconds_max
    while not (value := condition()):
        if time.monotonic() > ends:
            raise AssertionError(f"not within {seconds_max} s: {what}")
        time.sleep(0.01)
    return value


passed = 0


def check(what, condition):
    """A check of a suite whose last line is their number."""
    global passed
    assert condition, what
    passed += 1
    print(f"ok {what}", flush=True)


def checks():
    return passed


class Member:
    """A server. Its log is `log`, its data directory is `data`."""

    def __init__(self, number, directory, flags):
        self.number = number
        self.address = f"10.77.0.{number + 1}"
        self.host = f"{self.address}:{PORT}"
        self.namespace = f"m{number}"
        self.data = directory / f"data{number}"
        self.log = directory / f"log{number}"
        self.data.mkdir()
        self.flags = flags
        self.process = None
        self.client = pymongo.MongoClient(
            self.address, PORT, directConnection=True, serverSelectionTimeoutMS=1000, connectTimeoutMS=1000,
            socketTimeoutMS=5000, heartbeatFrequencyMS=500,
        )

    def spawn(self):
        command = ["ip", "netns", "exec", self.namespace, os.environ["KAURI"], "serve", "--port", str(PORT)]
        command += ["--bind_ip", self.address, "--dbpath", str(self.data), "--logpath", str(self.log)]
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(command + FLAGS + self.flags, stdout=log, stderr=subprocess.STDOUT)

    def start(self):
        """Starts the process and returns when it answers."""
        self.spawn()
        wait_until(f"member {self.number} answers", self.answers)

    def answers(self):
        assert self.process.poll() is None, f"member {self.number} has ended:\n{self.log_end()}"
        return self.hello() is not None

    def hello(self):
        with contextlib.suppress(PyMongoError):
            return self.client.admin.command("hello")
        return None

    def status(self):
        with contextlib.suppress(PyMongoError):
            return self.client.admin.command("replSetGetStatus")
        return None

    def state(self):
        """Its own word for its state, as in MongoDB."""
        status = self.status()
        return status and next(m["stateStr"] for m in status["members"] if m.get("self"))

    def is_primary(self):
        return (self.hello() or {}).get("isWritablePrimary", False)

    def is_running(self):
        return self.process is not None and self.process.poll() is None

    def kill(self):
        """kill -9, and waits until the process is gone."""
        self.process.kill()
        self.process.wait()

    def stop(self):
        """SIGTERM; returns the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(HANGING_SECONDS)

    def pause(self):
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)

    def log_end(self):
        return self.log.read_text(errors="replace")[-4000:] if self.log.exists() else ""

    def lists(self, database, collection):
        """All documents as this member has them, by `_id`."""
        preference = pymongo.ReadPreference.SECONDARY_PREFERRED
        found = self.client[database].get_collection(collection, read_preference=preference)
        return list(found.find(sort=[("_id", 1)]))


class World:
    """The set. As a context: keeps its directory if something fails, and tells where it is."""

    def __init__(self, flags=(), directories=None):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="kauri-set-"))
        self.lay_network()
        self.members = [Member(n, self.directory, list(flags)) for n in range(SIZE)]
        for number, directory in (directories or {}).items():
            self.members[number].data = directory
        self.cuts = set()

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        for member in self.members:
            if member.is_running():
                member.process.kill()
                member.process.wait()
        self.remove_network()
        if kind is None:
            shutil.rmtree(self.directory, ignore_errors=True)
        else:
            print(f"what is left of it: {self.directory}", flush=True)

    def lay_network(self):
        # Names of namespaces are files there; this directory is one of this mount namespace.
        if "\nkauri-set /run " not in pathlib.Path("/proc/mounts").read_text():
            subprocess.run(["mount", "-t", "tmpfs", "kauri-set", "/run"], check=True)
        ip("link", "set", "lo", "up")
        ip("link", "add", "bridge", "type", "bridge")
        ip("address", "add", "10.77.0.254/24", "dev", "bridge")
        ip("link", "set", "bridge", "up")
        for number in range(SIZE):
            name = f"m{number}"
            ip("netns", "add", name)
            ip("link", "add", f"to-{name}", "type", "veth", "peer", "name", "eth0", "netns", name)
            ip("link", "set", f"to-{name}", "master", "bridge", "up")
            ip("-n", name, "address", "add", f"10.77.0.{number + 1}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
            ip("-n", name, "link", "set", "lo", "up")

    def remove_network(self):
        for member in self.members:
            ip("link", "del", f"to-{member.namespace}")
            ip("netns", "del", member.namespace)
        ip("link", "del", "bridge")

    def initiate(self, settings=None):
        """Starts the servers as a new set, and returns when all members serve."""
        for member in self.members:
            member.spawn()
        for member in self.members:
            wait_until(f"member {member.number} answers", member.answers)
        hosts = [{"_id": m.number, "host": m.host} for m in self.members]
        config = {"_id": NAME, "members": hosts, **({"settings": settings} if settings else {})}
        self.members[0].client.admin.command("replSetInitiate", config)
        wait_until("all members serve", self.all_serve)

    @property
    def uri(self):
        hosts = ",".join(member.host for member in self.members)
        return f"mongodb://{hosts}/?replicaSet={NAME}"

    def primary(self):
        """The member that accepts writes; the one of the latest term if several say so."""
        found = [(hello["electionId"], m) for m in self.members if m.is_running() and (hello := m.hello())
                 and hello.get("isWritablePrimary")]
        return max(found, key=lambda one: one[0])[1] if found else None

    def wait_for_primary(self):
        return wait_until("there is a primary", self.primary)

    def all_serve(self):
        return sorted(m.state() or "" for m in self.members) == ["PRIMARY", "SECONDARY", "SECONDARY"]

    def all_have_the_same(self):
        """Whether the secondaries have applied what the primary has."""
        statuses = [member.status() for member in self.members]
        if not all(statuses):
            return False
        applied = [status["optimes"]["appliedOpTime"] for status in statuses]
        return all(one == applied[0] for one in applied)

    def cut(self, sender, receiver):
        """What one member sends to the other is lost."""
        name, address = self.members[sender].namespace, self.members[receiver].address
        ip("-n", name, "neigh", "replace", address, "lladdr", NOBODY, "dev", "eth0", "nud", "permanent")
        self.cuts.add((sender, receiver))

    def mend(self, sender, receiver):
        name, address = self.members[sender].namespace, self.members[receiver].address
        ip("-n", name, "neigh", "del", address, "dev", "eth0")
        self.cuts.discard((sender, receiver))

    def heal(self):
        """Ends everything that was done to the set. Returns at once."""
        for pair in list(self.cuts):
            self.mend(*pair)
        for member in self.members:
            if member.is_running():
                member.go_on()
            else:
                member.spawn()
