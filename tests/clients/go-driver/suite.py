"""Runs the Go driver's own tests against a replica set of three, and compares the results with a list.

    suite.py INSTALLED [--update]

The driver's module has the tests; the specification tests that they read come from pymongo's source distribution.
suite-replica-set.txt names the tests that pass. The run fails if one of them fails, is skipped or is missing. The list
only grows: `--update` adds new passing tests and removes none. Then the count in go-driver-replica-set.sh must be raised
as well. The last line is the number of listed tests that passed.
"""

import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile

from kauri_set import ReplicaSet
from suite_list import judge

LIST = pathlib.Path(__file__).with_name("suite-replica-set.txt")
# Where the driver looks for specification tests, and where pymongo has them.
SPECIFICATIONS = {
    "causal-consistency/tests": "causal_consistency",
    "command-logging-and-monitoring/tests/logging": "command_logging",
    "command-logging-and-monitoring/tests/monitoring": "command_monitoring",
    "mongodb-handshake/tests/unified": "handshake/unified",
    "read-write-concern/tests/operation": "read_write_concern/operation",
    "retryable-reads/tests/unified": "retryable_reads/unified",
    "retryable-writes/tests/unified": "retryable_writes/unified",
    "run-command/tests/unified": "run_command/unified",
    "server-discovery-and-monitoring/tests/unified": "discovery_and_monitoring/unified",
    "server-selection/tests/logging": "server_selection_logging",
    "sessions/tests": "sessions",
}
# A program and the tests to run. Each group has a set of its own; they run side by side.
GROUPS = [
    ("unified", "TestUnifiedSpec/(retryable-reads|command-.*|run-command|sessions)"),
    ("unified", "TestUnifiedSpec/(retryable-writes|causal-.*|.*handshake|server-.*)"),
    (
        "integration",
        "^(TestRetryable(Reads|Writes)Prose|TestNoWritesPerformedLabel|TestSDAM.*|TestServerSelectionProse|TestSession.*|"
        "TestServerHeartbeatStartedEvent|TestConnectionsSurvivePrimaryStepDown|TestCausalConsistency_Supported|"
        "TestHandshakeProse_Handshake_Documents|TestErrors.*|TestWriteErrors.*|TestWriteConcernError|TestUnifiedSpecs)$",
    ),
]
# Change streams, transactions and snapshots do not exist on a set yet. The others take long, or
# wait for a log line that the driver cuts off where the reply to hello is long.
LEFT_OUT = (
    "[cC]hange[sS]treams|[tT]ransaction|[sS]napshot|NoWritesPerformed_label|overload|retries_for_all|emit-topology|"
    "rtt_is_continuously|hello_without_speculative_authenticate_command"
)
# At whatever depth a part of a test has such a name.
SKIPPED = "|".join("/".join([".*"] * depth + [f"({LEFT_OUT})"]) for depth in range(7))
GROUP_SECONDS_MAX = 600


def unpack(installed, directory):
    """Puts the specification tests where the driver looks for them, without those that are left out."""
    [archive] = installed.glob("pymongo-suite/pymongo-*.tar.gz")
    subprocess.run(["tar", "-xzf", archive, "-C", directory, "--wildcards", "*/test/*.json"], check=True)
    [pymongo] = directory.iterdir()
    for place, source in SPECIFICATIONS.items():
        there = directory / "testdata/specifications/source" / place
        there.mkdir(parents=True)
        for file in (pymongo / "test" / source).glob("*.json"):
            if not re.search(LEFT_OUT, file.name):
                file.rename(there / file.name)


def run_group(installed, directory, program, tests):
    """The program, the outcomes of its tests, and what it printed."""
    members = ReplicaSet(["--setParameter", "enableTestCommands=1"])
    try:
        done = subprocess.run(
            [installed / "go-driver" / program, "-test.v", "-test.run", tests, "-test.skip", SKIPPED],
            cwd=directory,
            env={**os.environ, "MONGODB_URI": members.uri, "PROJECT_DIRECTORY": str(directory)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=GROUP_SECONDS_MAX,
            text=True,
        )
        members.stop()
        outcomes = dict(reversed(found) for found in re.findall(r"(?m)^ *--- ([A-Z]+): (.*) \(.*\)$", done.stdout))
        # A test with parts has passed if these have.
        parents = {name[: slash.start()] for name in outcomes for slash in re.finditer("/", name)}
        return program, {name: o for name, o in outcomes.items() if name not in parents}, done.stdout
    finally:
        members.remove()


def main(installed, update):
    with tempfile.TemporaryDirectory(prefix="kauri-go-driver-") as directory:
        directory = pathlib.Path(directory)
        unpack(installed, directory)
        with concurrent.futures.ThreadPoolExecutor(len(GROUPS)) as pool:
            runs = list(pool.map(lambda group: run_group(installed, directory, *group), GROUPS))
    outcomes = {}
    for program, found, _ in runs:
        names = {"PASS": "passed", "FAIL": "failed", "SKIP": "skipped"}
        outcomes |= {(program, name): names[outcome] for name, outcome in found.items()}
    judge(LIST, outcomes, [printed for _, _, printed in runs], update)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), "--update" in sys.argv[2:])
