"""Members without data copy another one's, while writes go on and processes are killed.

The last line is the number of checks.
"""

import shutil

from disk import own_status, same_everywhere, started
from world import FLAGS as FLAGS_OF_A_SET
from world import World, check, checks, wait_until

FLAGS = ["--segmentSizeMB", "4", "--maxSizeGB", "4", "--oplogSize", "8"]


def copied(member):
    """Bytes that the member has copied so far; None if it does not copy."""
    status = member.status() or {}
    return status.get("initialSyncStatus", {}).get("approxTotalBytesCopied")


def emptied(member):
    """The member's disk is emptied; the process is down."""
    shutil.rmtree(member.data)
    member.data.mkdir()


def lines(member, text):
    return member.log.read_text(errors="replace").count(text)


def earliest(member):
    """The time of the first write that the member's log still has."""
    return member.client.admin.command("serverStatus", oplog=1)["oplog"]["earliestOptime"]


def begun_with_data(world):
    """A standalone server's directory becomes that of a set of three at once."""
    first = world.members[0]
    first.flags, flags = [*FLAGS], first.flags
    of_a_set = FLAGS_OF_A_SET.copy()
    del FLAGS_OF_A_SET[-2:]
    first.start()
    docs = first.client.disk.docs
    for start in range(0, 20_000, 1000):
        docs.insert_many([{"_id": start + n, "text": "x" * 1000} for n in range(1000)])
    docs.create_index("text")
    check("a standalone server ends in order", first.stop() == 0)
    FLAGS_OF_A_SET[:] = of_a_set
    first.flags = flags
    world.initiate()
    for member in world.members[1:]:
        check("a new member copies the data", lines(member, "Initial sync done") == 1)
        indexes = list(member.client.disk.docs.list_indexes())
        check("and the indexes", [index["name"] for index in indexes] == ["_id_", "text_1"])
    wait_until("all members have the same", world.all_have_the_same)
    docs.drop()


def killed_on_the_way(world):
    """The receiver dies while it copies, then its source."""
    writer = started(world)
    writer.write(40)
    primary = world.primary()
    member = next(m for m in world.members if m is not primary)
    for victim in (member, primary):
        member.kill()
        emptied(member)
        member.start()
        wait_until("it copies", lambda: (copied(member) or 0) > 0)
        victim.kill()
        left = sorted(path.name for path in member.data.iterdir())
        done = "replica-set.bson" in left
        victim.start()
        writer.write(1)
        wait_until("all members serve", world.all_serve)
        check(f"a copy is made although the {'receiver' if victim is member else 'source'} died ({done=})", True)
        left = [path.name for path in member.data.iterdir() if path.name.startswith("initial-sync")]
        check("nothing is left of the copy", not left)
    writer.end()
    same_everywhere(world, writer)
    writer.collection.drop()


def too_stale(world):
    """A member was away for more writes than the others keep."""
    member = next(m for m in world.members if not m.is_primary())
    check("it ends in order", member.stop() == 0)
    primary = world.primary()
    writer = started(world)
    missed = primary.status()["optimes"]["appliedOpTime"]["ts"]
    while earliest(primary) <= missed:
        writer.write(10)
    member.start()
    wait_until("it knows that it is too stale", lambda: (member.status() or {}).get("tooStale"))
    check("a member that was away for too long says so", own_status(member)["stateStr"] == "RECOVERING")
    wait_until("its log tells the way out", lambda: lines(member, "too stale to catch up"))
    check("it ends in order", member.stop() == 0)
    emptied(member)
    member.start()
    wait_until("all members serve", world.all_serve)
    writer.write(1)
    writer.end()
    same_everywhere(world, writer)
    check("emptied it comes back", True)


def main():
    with World(FLAGS) as world:
        begun_with_data(world)
        killed_on_the_way(world)
        too_stale(world)
    print(checks())


if __name__ == "__main__":
    main()
