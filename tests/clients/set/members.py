"""Members that leave their set, a set that is restored from a copy of one member's directory, and a delayed member.

The last line is the number of checks.
"""

import os
import shutil
import subprocess

from pymongo import ReadPreference, WriteConcern
from pymongo.errors import NetworkTimeout, NotPrimaryError, OperationFailure, WTimeoutError
from world import FLAGS as FLAGS_OF_A_SET
from world import HANGING_SECONDS, NAME, World, check, checks, wait_until

FLAGS = ["--segmentSizeMB", "4", "--maxSizeGB", "4", "--setParameter", "enableTestCommands=1"]
DOCS = 500


def kauri(member, *flags):
    """Runs a command of the server on the member's directory; its exit status and what it says."""
    command = [os.environ["KAURI"], "serve", "--dbpath", str(member.data), *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANGING_SECONDS)
    return done.returncode, done.stdout + done.stderr


def start_alone(member):
    """Starts the server without a set."""
    of_a_set = FLAGS_OF_A_SET.copy()
    del FLAGS_OF_A_SET[-2:]
    member.start()
    FLAGS_OF_A_SET[:] = of_a_set


def ids(member):
    return [doc["_id"] for doc in member.lists("shop", "docs")]


def left(world):
    """A member's directory becomes that of a server alone, and then begins a set again."""
    primary = world.primary()
    docs = primary.client.shop.docs.with_options(write_concern=WriteConcern(3))
    docs.create_index("n", unique=True)
    docs.insert_many([{"_id": n, "n": n} for n in range(DOCS)])
    member = next(m for m in world.members if m is not primary)
    copy = world.directory / "copy"
    check("a member ends in order", member.stop() == 0)
    shutil.copytree(member.data, copy)
    status, said = kauri(member)
    check("without --replSet a member does not start", status != 0)
    check("and says what to do", f"--replSet {NAME}" in said and "--leaveReplSet" in said)
    check("--leaveReplSet ends well", kauri(member, "--leaveReplSet")[0] == 0)
    check("also once more", kauri(member, "--leaveReplSet")[0] == 0)
    names = [path.name for path in member.data.iterdir() if path.name.startswith("replica-set")]
    check("nothing of the set is left", not names)
    start_alone(member)
    check("it has everything", ids(member) == list(range(DOCS)))
    check("it is in no set", "setName" not in member.hello())
    member.client.shop.docs.insert_one({"_id": DOCS, "n": DOCS})
    member.kill()
    start_alone(member)
    check("what it writes alone stays", ids(member) == list(range(DOCS + 1)))
    check("with its indexes", "n_1" in member.client.shop.docs.index_information())
    member.stop()
    member.start()
    text = "This member has other data than the set that invites it"
    wait_until("the set does not take it back", lambda: text in member.log.read_text(errors="replace"))
    check("the other members go on", world.primary().is_primary())
    member.stop()
    member.data = copy


def restored(world):
    """All members are lost; a copy of one directory begins the set again, and the others copy it."""
    first = next(m for m in world.members if not m.is_running())
    others = [m for m in world.members if m is not first]
    for member in others:
        member.kill()
        shutil.rmtree(member.data)
        member.data.mkdir()
    check("the copy leaves its set", kauri(first, "--leaveReplSet")[0] == 0)
    first.start()
    config = {"_id": NAME, "members": [{"_id": first.number, "host": first.host}]}
    first.client.admin.command("replSetInitiate", config)
    wait_until("it leads", first.is_primary)
    for member in others:
        member.start()
        config = first.client.admin.command("replSetGetConfig")["config"]
        config["version"] += 1
        config["members"].append({"_id": member.number, "host": member.host})
        first.client.admin.command("replSetReconfig", config)
        wait_until("the new member serves", lambda member=member: member.state() == "SECONDARY")
    wait_until("all members have the same", world.all_have_the_same)
    for member in world.members:
        check("each member has what the copy had", ids(member) == list(range(DOCS)))


def delayed(world):
    """A member shows the past."""
    primary = world.wait_for_primary()
    late = next(m for m in world.members if m is not primary)
    config = primary.client.admin.command("replSetGetConfig")["config"]
    config["version"] += 1
    of_late = next(m for m in config["members"] if m["host"] == late.host)
    of_late.update(priority=0, hidden=True, secondaryDelaySecs=3600)
    primary.client.admin.command("replSetReconfig", config)
    wait_until("it knows", lambda: (late.hello() or {}).get("secondaryDelaySecs") == 3600)
    docs = primary.client.shop.docs
    docs.with_options(write_concern=WriteConcern("majority")).insert_one({"_id": "new", "n": -1})
    try:
        docs.with_options(write_concern=WriteConcern(3, wtimeout=500)).insert_one({"_id": "newer", "n": -2})
        check("a delayed member acknowledges nothing yet", False)
    except WTimeoutError:
        check("a delayed member acknowledges nothing yet", True)
    late.stop()
    late.start()
    wait_until("it serves", lambda: late.state() == "SECONDARY")
    check("it shows the past", not {"new", "newer"} & set(ids(late)))
    config["version"] += 1
    of_late.update(secondaryDelaySecs=0)
    primary.client.admin.command("replSetReconfig", config)
    wait_until("without a delay it shows everything", lambda: {"new", "newer"} <= set(ids(late)))


def locked(world):
    """A member's files are locked: it lags and goes on to serve, and a copy of its files is whole."""
    primary = world.wait_for_primary()
    member = next(m for m in world.members if m is not primary)
    term = primary.status()["term"]
    docs = primary.client.shop.docs.with_options(write_concern=WriteConcern("majority"))
    docs.insert_one({"_id": 2000, "n": 2000})
    wait_until("all members have the same", world.all_have_the_same)
    member.client.admin.command("fsync", lock=True)
    docs.insert_many([{"_id": 2001 + n, "n": 2001 + n} for n in range(200)])
    check("a locked secondary serves", member.state() == "SECONDARY" and 2000 in ids(member))
    check("and shows nothing new", 2001 not in ids(member))
    shutil.copytree(member.data, world.directory / "held", ignore=shutil.ignore_patterns("*.lock", "diagnostic.data"))
    member.client.admin.command("fsyncUnlock")
    wait_until("it catches up", lambda: 2200 in ids(member))
    primary.client.admin.command("fsync", lock=True)
    try:
        docs.with_options(write_concern=WriteConcern(1)).insert_one({"_id": "held"}, comment="waits")
        check("writes wait while the primary is locked", False)
    except NetworkTimeout:
        check("writes wait while the primary is locked", True)
    primary.client.admin.command("fsyncUnlock")
    wait_until("the write is done", lambda: "held" in ids(primary))
    check("the primary stays", primary.is_primary() and primary.status()["term"] == term)


def code_of(run):
    """The code that a command fails with; 0 if it does not fail."""
    try:
        run()
    except (NotPrimaryError, OperationFailure) as error:
        return error.details["code"]
    return 0


def told(world):
    """What an operator tells a member."""
    primary = world.wait_for_primary()
    member = next(m for m in world.members if m is not primary)
    admin = member.client.admin
    for on, state in [(True, "RECOVERING"), (True, "RECOVERING"), (False, "RECOVERING"), (False, "SECONDARY")]:
        admin.command("replSetMaintenance", on)
        wait_until(f"it is {state}", lambda state=state: member.state() == state)
    check("maintenance ends as often as it began", code_of(lambda: admin.command("replSetMaintenance", False)) == 96)
    admin.command("replSetSyncFrom", primary.host)
    other = next(m for m in world.members if m not in (primary, member))
    check("a secondary syncs from the primary only",
          code_of(lambda: admin.command("replSetSyncFrom", other.host)) == 72)
    sink = [{"$match": {"_id": 1}}, {"$out": "copied"}]
    out = {"aggregate": "docs", "pipeline": sink, "cursor": {}}
    database = member.client.get_database("shop", read_preference=ReadPreference.SECONDARY)
    check("$out is refused on a secondary", code_of(lambda: database.command(out)) == 10107)
    check("local is not written", code_of(lambda: member.client.local.own.insert_one({})) == 20)
    config = primary.client.admin.command("replSetGetConfig")["config"]
    config["version"] += 1
    next(m for m in config["members"] if m["host"] == member.host)["priority"] = 7
    primary.client.admin.command("replSetReconfig", config)
    wait_until("the member of the highest priority takes over", member.is_primary)
    check("the highest priority leads", world.wait_for_primary() is member)


def held_back(world):
    """A test has a secondary take no entries."""
    primary = world.wait_for_primary()
    member = next(m for m in world.members if m is not primary)
    stop = {"configureFailPoint": "stopReplProducer", "mode": "alwaysOn"}
    member.client.admin.command(stop)
    primary.client.shop.docs.with_options(write_concern=WriteConcern("majority")).insert_one({"_id": 3000, "n": 3000})
    check("it takes no entries", 3000 not in ids(member) and member.state() == "SECONDARY")
    member.client.admin.command({**stop, "mode": "off"})
    wait_until("it goes on", lambda: 3000 in ids(member))


def main():
    with World(FLAGS) as world:
        world.initiate()
        left(world)
        restored(world)
        locked(world)
        told(world)
        held_back(world)
        delayed(world)
    print(checks())


if __name__ == "__main__":
    main()
