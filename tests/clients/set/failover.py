"""How long a set accepts no write when its primary is killed, and when it steps down. And rolling restarts.

failover.py --kills N --step-downs N --restarts N --seed X: writers insert all the time, one document after the other, with retryable
writes and w: majority. They must see no error, and no acknowledged document may be missing or be there twice. A time is
that from the kill, or from the command, to the first reply to a write by another primary. In a
rolling restart all members end in order and start again, one after the other, the primary last; every second time
it does not step down before. The last line is the number of kills, step-downs and restarts.
"""

import argparse
import math
import random
import statistics
import threading
import time

from pymongo import MongoClient, WriteConcern, monitoring
from pymongo.errors import AutoReconnect, PyMongoError

from world import World, wait_until

WRITERS = 4
# Between two faults a writer has had this many replies.
REPLIES_BETWEEN = 20


class Replies(monitoring.CommandListener):
    """When each member last began to answer inserts, and how many it answered."""

    def __init__(self):
        self.lock = threading.Condition()
        self.counts = {}
        self.not_from = None
        self.first = None

    def started(self, event):
        pass

    def failed(self, event):
        pass

    def succeeded(self, event):
        now = time.monotonic()
        if event.command_name != "insert" or "writeConcernError" in event.reply or "writeErrors" in event.reply:
            return
        with self.lock:
            self.counts[event.connection_id] = self.counts.get(event.connection_id, 0) + 1
            if self.not_from and event.connection_id != self.not_from and self.first is None:
                self.first = now
            self.lock.notify_all()

    def watch(self, not_from):
        """From now on the first reply by another member than this counts."""
        with self.lock:
            self.not_from, self.first = not_from, None

    def wait_for_first(self):
        with self.lock:
            assert self.lock.wait_for(lambda: self.first is not None, 120), "no write is acknowledged any more"
            self.not_from = None
            return self.first

    def total(self):
        with self.lock:
            return sum(self.counts.values())


class Writer(threading.Thread):
    def __init__(self, number, collection, stopped):
        super().__init__(daemon=True)
        self.number = number
        self.collection = collection
        self.stopped = stopped
        self.acknowledged = []
        self.errors = []

    def run(self):
        serial = 0
        while not self.stopped.is_set():
            serial += 1
            key = self.number * 10_000_000 + serial
            try:
                self.collection.insert_one({"_id": key, "text": "x" * 100})
                self.acknowledged.append(key)
            except PyMongoError as error:
                self.errors.append(f"{time.monotonic():.3f} {key}: {type(error).__name__} {error}"[:1000])


class Failover:
    def __init__(self, world, rng):
        self.world = world
        self.rng = rng
        self.replies = Replies()
        self.client = MongoClient(world.uri, event_listeners=[self.replies])
        self.collection = self.client.failover.get_collection("docs", write_concern=WriteConcern("majority"))
        self.stopped = threading.Event()
        self.writers = [Writer(n, self.collection, self.stopped) for n in range(WRITERS)]

    def run(self, kills, step_downs, restarts):
        for writer in self.writers:
            writer.start()
        killed = [self.fault(self.kill) for _ in range(kills)]
        stepped = [self.fault(self.step_down) for _ in range(step_downs)]
        for number in range(restarts):
            self.restart_all(steps_down=number % 2 == 0)
        self.settle()
        self.stopped.set()
        for writer in self.writers:
            writer.join(120)
            assert not writer.is_alive(), "a writer waits for ever"
        self.check()
        tell("kill -9 to the first acknowledged write", killed)
        tell("step-down to the first acknowledged write", stepped)

    def settle(self):
        """All members serve and have the same, and writers are at work."""
        wait_until("all members serve", self.world.all_serve)
        before = self.replies.total()
        wait_until("writers are at work", lambda: self.replies.total() >= before + REPLIES_BETWEEN * WRITERS)
        # At any point of heartbeats and ticks.
        time.sleep(self.rng.uniform(0, 0.3))

    def fault(self, way):
        self.settle()
        member = self.world.wait_for_primary()
        self.replies.watch((member.address, 27017))
        began = time.monotonic()
        after = way(member)
        took = self.replies.wait_for_first() - began
        after()
        return took

    def kill(self, member):
        member.kill()
        return member.spawn

    def step_down(self, member):
        try:
            member.client.admin.command("replSetStepDown", 2, secondaryCatchUpPeriodSecs=1)
        except AutoReconnect as error:
            raise AssertionError(f"a step-down closed the connection: {error}") from error
        return lambda: None

    def restart_all(self, steps_down):
        """As an operator upgrades a set."""
        self.settle()
        last = self.world.wait_for_primary()
        for member in [*(member for member in self.world.members if member is not last), last]:
            if member is last and steps_down:
                self.step_down(member)
            ended = member.stop()
            assert ended == 0, f"member {member.number} ended with {ended}:\n{member.log_end()}"
            # The others go on.
            before = self.replies.total()
            wait_until("writers are at work", lambda: self.replies.total() >= before + REPLIES_BETWEEN)
            member.start()
            self.settle()
        assert self.world.wait_for_primary() is not last, "no other member has become the primary"
        print(f"all members have started again, {'after' if steps_down else 'without'} a step-down", flush=True)

    def check(self):
        errors = [error for writer in self.writers for error in writer.errors]
        assert not errors, f"{len(errors)} errors: {errors[:5]}"
        acknowledged = {key for writer in self.writers for key in writer.acknowledged}
        wait_until("all members have the same", self.world.all_have_the_same)
        for member in self.world.members:
            found = [document["_id"] for document in member.lists("failover", "docs")]
            assert len(found) == len(set(found)), f"member {member.number} has documents twice"
            missing = acknowledged - set(found)
            assert not missing, f"member {member.number} lacks {len(missing)}: {sorted(missing)[:10]}"
            more = set(found) - acknowledged
            assert not more, f"member {member.number} has {len(more)} that were not acknowledged"
        print(f"{len(acknowledged)} documents, none is missing, no writer saw an error", flush=True)


def tell(what, seconds):
    if seconds:
        times = sorted(seconds)
        p99 = times[math.ceil(len(times) * 0.99) - 1]
        median = statistics.median(times)
        print(f"{what}: {len(times)} times, median {median * 1000:.0f} ms, p99 {p99 * 1000:.0f} ms, "
              f"slowest {[round(time * 1000) for time in times[-5:]]}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--step-downs", type=int, default=3)
    parser.add_argument("--restarts", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with World(["--maxSizeGB", "4"]) as world:
        world.initiate()
        Failover(world, random.Random(options.seed)).run(
            options.kills, options.step_downs, options.restarts
        )
    print(options.kills + options.step_downs + options.restarts)


if __name__ == "__main__":
    main()
