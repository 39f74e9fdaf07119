"""Runs specification tests with the Node.js driver against a replica set of three, and compares the results with a list.

    suite.py INSTALLED [--update]

The driver's package has no tests: specifications.js runs those of pymongo's source distribution. suite-replica-set.txt
names the tests that pass. The run fails if one of them fails, is skipped or is missing. The list only grows: `--update`
adds new passing tests and removes none. Then the count in node-replica-set.sh must be raised as well. The last line is
the number of listed tests that passed.
"""

import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from kauri_set import ReplicaSet
from suite_list import judge

HERE = pathlib.Path(__file__).parent
# Each group has a set of its own; they run side by side.
GROUPS = [
    ["retryable_reads/unified", "run_command/unified"],
    ["retryable_writes/unified", "command_monitoring", "causal_consistency", "sessions"],
]
GROUP_SECONDS_MAX = 600


def run_group(directory, specifications):
    """The outcomes by file and test, and the reason of each that did not pass."""
    members = ReplicaSet(["--setParameter", "enableTestCommands=1"])
    try:
        done = subprocess.run(
            ["node", HERE / "specifications.js", directory, *specifications],
            env={**os.environ, "KAURI_URI": members.uri},
            stdout=subprocess.PIPE,
            timeout=GROUP_SECONDS_MAX,
            text=True,
            check=True,
        )
        members.stop()
    finally:
        members.remove()
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    reasons = [f"{row['file']}: {row['test']}: {row['why']}" for row in rows if row["outcome"] == "failed"]
    return {(row["file"], row["test"]): row["outcome"] for row in rows}, reasons


def main(installed, update):
    [archive] = pathlib.Path(installed).glob("pymongo-suite/pymongo-*.tar.gz")
    with tempfile.TemporaryDirectory(prefix="kauri-node-") as directory:
        subprocess.run(["tar", "-xzf", archive, "-C", directory, "--wildcards", "*/test/*.json"], check=True)
        [source] = pathlib.Path(directory).iterdir()
        with concurrent.futures.ThreadPoolExecutor(len(GROUPS)) as pool:
            runs = list(pool.map(lambda group: run_group(source / "test", group), GROUPS))
    outcomes = {}
    for found, _ in runs:
        outcomes |= found
    judge(HERE / "suite-replica-set.txt", outcomes, [reason for _, reasons in runs for reason in reasons], update)


if __name__ == "__main__":
    main(sys.argv[1], "--update" in sys.argv[2:])
