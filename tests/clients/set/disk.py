"""Members of a set whose disk is full, and one that was away: the others go on, and it comes back with everything.

The last line is the number of checks.
"""

import contextlib
import subprocess
import threading

from pymongo import MongoClient, WriteConcern
from pymongo.errors import PyMongoError

from world import World, check, checks, wait_until

FLAGS = ["--segmentSizeMB", "4", "--maxSizeGB", "2"]
DISK_MB = 320
BATCH = 200
KB = "x" * 1000


class Writer(threading.Thread):
    """Inserts with w: majority, as far as it is told to. Its documents are `_id` 0 to `written` - 1."""

    def __init__(self, collection):
        super().__init__(daemon=True)
        self.collection = collection
        self.written = 0
        self.goal = 0
        self.errors = []
        self.changed = threading.Condition()

    def run(self):
        while True:
            with self.changed:
                self.changed.wait_for(lambda: self.goal is None or self.written < self.goal)
                if self.goal is None:
                    return
            docs = [{"_id": self.written + n, "text": KB} for n in range(BATCH)]
            try:
                self.collection.insert_many(docs)
            except PyMongoError as error:
                self.errors.append(repr(error)[:500])
                return
            self.written += BATCH

    def begin(self, more_mb):
        """So much more is to be written."""
        with self.changed:
            self.goal = self.written + more_mb * 1000
            self.changed.notify_all()

    def write(self, more_mb):
        """Returns once so much more is acknowledged."""
        self.begin(more_mb)
        wait_until("writes go on", lambda: self.errors or self.written >= self.goal)
        assert not self.errors, self.errors

    def end(self):
        with self.changed:
            self.goal = None
            self.changed.notify_all()
        self.join(120)
        assert not self.errors, self.errors


class Disk:
    """A small disk of its own for a member's data."""

    def __init__(self, directory):
        self.directory = directory
        self.ballast = directory / "ballast"
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m", "tmpfs", directory], check=True)

    def fill(self):
        """Leaves no byte to others."""
        subprocess.run(["dd", "if=/dev/zero", f"of={self.ballast}", "bs=64k"], capture_output=True)

    def empty(self):
        self.ballast.unlink()


def same_everywhere(world, writer):
    wait_until("all members serve", world.all_serve)
    wait_until("all members have the same", world.all_have_the_same)
    for member in world.members:
        found = [document["_id"] for document in member.lists("disk", "docs")]
        assert found == list(range(writer.written)), f"member {member.number} has {len(found)} of {writer.written}"


def started(world):
    collection = MongoClient(world.uri).disk.get_collection("docs", write_concern=WriteConcern("majority"))
    writer = Writer(collection)
    writer.start()
    return writer


def full(world, disk, member):
    """The member's disk is full for a while, under writes."""
    role = member.state()
    writer = started(world)
    writer.write(2)
    lines_before = complaints(member)
    disk.fill()
    # It has room for what it has prepared.
    writer.write(20)
    wait_until("the log tells of it", lambda: complaints(member) > lines_before)
    check(f"a {role} with a full disk tells of it in its log", True)
    wait_until("its own status tells of it", lambda: tells_of_it(member))
    check("and in its status", True)
    others = [m for m in world.members if m is not member]
    for other in others:
        wait_until("another one's status tells of it", lambda: sees(other, member) == "RECOVERING")
    check("and the others know", True)
    writer.write(4)
    check("the others go on", world.primary() in others)
    disk.empty()
    wait_until("all members serve", world.all_serve)
    writer.write(2)
    writer.end()
    same_everywhere(world, writer)
    check(f"a {role} comes back when there is room", not own_status(member)["infoMessage"])
    writer.collection.drop()


def complaints(member):
    return member.log.read_text(errors="replace").count("The member cannot write its log")


def own_status(member):
    status = member.status()
    return next((m for m in status["members"] if m.get("self")), None) if status else None


def tells_of_it(member):
    own = own_status(member)
    return own and own["stateStr"] == "RECOVERING" and "no space left" in own["infoMessage"]


def sees(observer, member):
    """The state of a member as another one has it."""
    status = observer.status()
    return status and status["members"][member.number]["stateStr"]


def away(world):
    """A secondary is stopped, and killed, while many writes run."""
    for way in ("stopped in order", "killed"):
        member = next(m for m in world.members if not m.is_primary())
        writer = started(world)
        writer.write(1)
        if way == "killed":
            member.kill()
        else:
            check("it ends in order", member.stop() == 0)
        writer.write(20)
        writer.begin(5)
        member.start()
        wait_until("all members serve", world.all_serve)
        writer.write(1)
        writer.end()
        same_everywhere(world, writer)
        check(f"a member that was {way} catches up", True)
        writer.collection.drop()


def leads(world, member):
    """Whether it is the primary; it is told to."""
    if not member.is_primary():
        with contextlib.suppress(PyMongoError):
            member.client.admin.command("replSetStepUp", 1)
    return world.all_serve() and world.primary() is member


def main():
    with World(FLAGS) as world:
        small = world.members[2]
        disk = Disk(small.data)
        world.initiate()
        away(world)
        wait_until("another one leads", lambda: leads(world, world.members[0]))
        full(world, disk, small)
        wait_until("the small one leads", lambda: leads(world, small))
        full(world, disk, small)
    print(checks())


if __name__ == "__main__":
    main()
