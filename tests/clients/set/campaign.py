"""Clients append to lists and read them while members of a set are killed, stopped and cut off.

campaign.py CHECKER --seconds S --runs N --rate R --seed X: each run is a new set. After a run everything is healed.
Then the set has to accept writes again, all members have to serve and to have the same documents and sound indexes,
and CHECKER finds no fault in the history. The last line is the number of runs.
"""

import argparse
import collections
import json
import pathlib
import random
import subprocess
import sys
import time

from pymongo import MongoClient, ReadPreference, WriteConcern
from pymongo.errors import PyMongoError
from pymongo.read_concern import ReadConcern

from appends import COLLECTION, DATABASE, OPTIONS, TAKEN
from nemesis import FAULTS
from world import World, wait_until

PROCESSES = 3
THREADS = 6
HERE = pathlib.Path(__file__).parent


class Run:
    def __init__(self, options, number):
        self.options = options
        self.rng = random.Random(options.seed * 1000 + number)
        self.number = number
        self.faults = 0
        self.began = time.monotonic_ns()

    def say(self, what):
        print(f"{(time.monotonic_ns() - self.began) / 1e9:7.2f} {what}", flush=True)

    def run(self):
        with World(["--maxSizeGB", "2"]) as world:
            self.world = world
            world.initiate()
            self.collection = MongoClient(world.uri, **OPTIONS)[DATABASE].get_collection(
                COLLECTION, write_concern=WriteConcern("majority")
            )
            self.collection.create_index("unique", unique=True, sparse=True)
            self.collection.insert_one({"_id": -1, "unique": TAKEN})
            self.began = time.monotonic_ns()
            processes = [self.client_process(number) for number in range(PROCESSES)]
            try:
                self.make_faults()
                recovered = self.recover()
            finally:
                for process in processes:
                    process.terminate()
                outputs = [process.communicate()[0] for process in processes]
            assert all(process.returncode == 0 for process in processes), outputs
            self.compare()
            counts = collections.Counter()
            for output in outputs:
                counts.update(json.loads(output.splitlines()[-1]))
            self.tell(counts, recovered)
            self.check()

    def client_process(self, number):
        command = [sys.executable, HERE / "appends.py", self.world.uri, self.file(number)]
        command += ["--number", number, "--threads", THREADS, "--rate", self.options.rate / PROCESSES]
        command += ["--began", self.began, "--seed", self.rng.randrange(1 << 30)]
        return subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True)

    def file(self, number):
        return self.world.directory / f"history{number}"

    def make_faults(self):
        ends = time.monotonic() + self.options.seconds
        while (left := ends - time.monotonic()) > 0:
            time.sleep(min(left, self.rng.uniform(0.2, 2.5)))
            count = self.rng.choice([1, 1, 1, 2])
            faults = [kind(self.world, self.rng) for kind in self.rng.sample(FAULTS, count)]
            for fault in faults:
                self.say(fault.begin())
                self.faults += 1
            time.sleep(self.rng.uniform(0.2, 3.0))
            for fault in faults:
                fault.end()
            self.say("ended")

    def recover(self):
        """Heals the set; returns the seconds until it accepts writes and all members serve and have them."""
        healed = time.monotonic()
        self.world.heal()
        write = {"_id": -2}
        wait_until("a write is acknowledged", lambda: self.is_written(write))
        wait_until("all members serve", self.world.all_serve)
        for member in self.world.members:
            wait_until(f"member {member.number} has the write", lambda: self.has(member, write))
        took = time.monotonic() - healed
        limit = self.options.recovery_seconds_max
        assert took <= limit, f"the set took {took:.1f} s to recover, not {limit}"
        return took

    def is_written(self, write):
        try:
            self.collection.replace_one(write, write, upsert=True)
        except PyMongoError:
            return False
        return True

    def has(self, member, write):
        preference = ReadPreference.SECONDARY_PREFERRED
        try:
            return member.client[DATABASE].get_collection(COLLECTION, read_preference=preference).find_one(write)
        except PyMongoError:
            return None

    def compare(self):
        """All members have the same documents; notes them as the last reads."""
        wait_until("all members have the same", self.world.all_have_the_same)
        sent = time.monotonic_ns()
        linearizable = self.collection.with_options(read_concern=ReadConcern("linearizable"))
        documents = list(linearizable.find(sort=[("_id", 1)]))
        end = time.monotonic_ns()
        with open(self.file("-last"), "w") as file:
            for document in documents:
                if document["_id"] >= 0:
                    values = ",".join(map(str, document["list"]))
                    file.write(f"1000000 {sent} {end} realtime r{document['_id']}={values}\n")
        for member in self.world.members:
            found = member.lists(DATABASE, COLLECTION)
            assert found == documents, f"member {member.number}: {difference(documents, found)}"
            report = member.client[DATABASE].command(
                "validate", COLLECTION, full=True, read_preference=ReadPreference.SECONDARY_PREFERRED
            )
            assert report["valid"], f"member {member.number}: {report}"

    def tell(self, counts, recovered):
        done = sum(count for way, count in counts.items() if "failed" not in way)
        failed = {way: count for way, count in sorted(counts.items()) if "failed" in way}
        self.say(f"{done} operations, {self.faults} faults, recovered within {recovered:.1f} s")
        self.say({way: count for way, count in sorted(counts.items()) if "failed" not in way})
        self.say(failed)

    def check(self):
        files = sorted(self.world.directory.glob("history*"))
        checked = subprocess.run([self.options.checker, *files], capture_output=True, text=True)
        self.say(checked.stdout.splitlines()[-1] if checked.stdout else "the checker says nothing")
        assert checked.returncode == 0, checked.stdout[-8000:] + checked.stderr


def difference(expected, found):
    by_id = {document["_id"]: document for document in found}
    differ = [document for document in expected if by_id.pop(document["_id"], None) != document]
    return f"{len(differ)} others, {len(by_id)} more: {differ[:2]} {list(by_id.values())[:2]}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("checker")
    parser.add_argument("--seconds", type=float, default=25)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--rate", type=float, default=1000, help="operations a second")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--recovery-seconds-max", type=float, default=float("inf"))
    options = parser.parse_args()
    for number in range(options.runs):
        print(f"run {number} of seed {options.seed}", flush=True)
        Run(options, number).run()
    print(options.runs)


if __name__ == "__main__":
    main()
