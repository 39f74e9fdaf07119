"""Loads and runs go-ycsb's workloads A to F against KAURI_URI and checks their effects.

Each workload must complete all its operations without an error, and leave as many records as were loaded and
inserted. Prints one line per workload. The last line is the number of workloads.
"""

import os
import pathlib
import re
import subprocess
import sys

from pymongo import MongoClient

RECORDS = int(os.environ.get("YCSB_RECORDS", "2000"))
OPERATIONS = int(os.environ.get("YCSB_OPERATIONS", "4000"))
SCANNED_MAX = 100

# What each workload's operations must be.
KINDS = {
    "a": {"READ", "UPDATE"},
    "b": {"READ", "UPDATE"},
    "c": {"READ"},
    "d": {"READ", "INSERT"},
    "e": {"SCAN", "INSERT"},
    "f": {"READ", "UPDATE", "READ_MODIFY_WRITE"},
}

directory = pathlib.Path(sys.argv[1])
uri = os.environ["KAURI_URI"]
client = MongoClient(uri)
records = client.ycsb.usertable


def ycsb(phase, workload):
    """Runs one phase; returns how many operations of each kind it did."""
    ran = subprocess.run(
        [directory / "go-ycsb", phase, "mongodb", "-P", directory / "workloads" / f"workload{workload}"]
        + ["-p", f"mongodb.url={uri}ycsb?w=1", "-p", f"recordcount={RECORDS}"]
        + ["-p", f"operationcount={OPERATIONS}", "-p", "threadcount=8"]
        + ["-p", f"maxscanlength={SCANNED_MAX}"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    text = ran.stdout + ran.stderr
    # The summary follows the lines of the progress.
    summary = text[text.index("Run finished") :] if "Run finished" in text else ""
    counts = {k: int(n) for k, n in re.findall(r"^(\w+) +- .*?Count: (\d+)", summary, re.M)}
    if ran.returncode or not counts or re.search("error|panic", text, re.I):
        sys.exit(f"{phase} {workload}: status {ran.returncode}\n{text[-4000:]}")
    counts.pop("TOTAL", None)
    return counts


def check(what, got, want):
    if got != want:
        sys.exit(f"{what}: {got}, not {want}")


for workload, kinds in KINDS.items():
    records.drop()
    check(f"load {workload}", ycsb("load", workload), {"INSERT": RECORDS})
    check(f"records after load {workload}", records.count_documents({}), RECORDS)
    counts = ycsb("run", workload)
    check(f"kinds in {workload}", set(counts), kinds)
    # A read-modify-write counts its read and its update as well.
    modified = counts.get("READ_MODIFY_WRITE", 0)
    done = sum(counts.values()) - 2 * modified
    check(f"operations of {workload}", done, OPERATIONS)
    inserted = counts.get("INSERT", 0)
    check(f"records after {workload}", records.count_documents({}), RECORDS + inserted)
    # Every record is whole: its id and ten fields.
    whole = sum(len(r) == 11 and all(len(r[f"field{i}"]) == 100 for i in range(10)) for r in records.find())
    check(f"whole records after {workload}", whole, RECORDS + inserted)
    print(f"go-ycsb {workload}: {counts}")
print(len(KINDS))
