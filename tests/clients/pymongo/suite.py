"""Runs the tests of pymongo's source distribution that need a server, and compares the results with a list.

    suite.py INSTALLED standalone|replica-set [--update]

suite.txt and suite-replica-set.txt name the tests that pass, by file and with their count. The run fails if one of them
fails, is skipped or is missing. The lists only grow: `--update` adds new passing tests and removes none. Then the count
in pymongo-suite.sh or pymongo-suite-replica-set.sh must be raised as well. The last line is the number of listed tests
that passed.
"""

import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from kauri_server import Server
from kauri_set import ReplicaSet
from suite_list import SuiteList

HERE = pathlib.Path(__file__).parent
LISTS = {"standalone": HERE / "suite.txt", "replica-set": HERE / "suite-replica-set.txt"}
# Each group has a server or a set of its own; they run side by side.
GROUPS = {}
GROUPS["standalone"] = [
    "retryable_reads_unified cursor collection collection_management database examples custom_types "
    "typing dbref raw_bson json_util_integration index_management versioned_api",
    "crud_unified crud_v1 read_write_concern_spec command_monitoring command_logging gridfs "
    "gridfs_bucket gridfs_spec grid_file bulk client_bulk_write operations results write_concern",
    "unified_format csot monitoring operation_id_retry retryable_reads retryable_writes "
    "retryable_writes_unified streaming_protocol versioned_api_integration run_command",
    "server_selection_logging sdam_monitoring_spec sessions_unified session causal_consistency "
    "create_entities handshake_unified collation read_concern comment transactions_unified",
]
# On a set: what sets have and what drivers make of it.
GROUPS["replica-set"] = [
    "retryable_reads_unified retryable_reads run_command",
    "retryable_writes retryable_writes_unified handshake_unified command_monitoring command_logging monitoring",
    "read_concern read_write_concern_spec write_concern sdam_monitoring_spec causal_consistency sessions_unified session "
    "read_preferences server_selection_logging",
    "discovery_and_monitoring connections_survive_primary_stepdown_spec",
]
# Parts of names of tests that are not even begun. Change streams, transactions and snapshots do not exist on a set yet.
# The others speak to a server at the default port, and wait half a minute for it.
LEFT_OUT = {
    "standalone": [],
    "replica-set": "ChangeStreams ransaction napshot overload_errors overload_then drivers_return_the_correct_error".split(),
}
# Tests that pass or fail by how long things take, on machines that have other work.
UNSTEADY = {
    "test_csot.py": {"TestCsotCommandExecution"},
    "test_cursor.py": {"TestCursor::test_timeout_kills_cursor_synchronously"},
    "test_streaming_protocol.py": {
        "TestStreamingProtocol::test_monitor_waits_after_server_check_error",
        "TestStreamingProtocol::test_streaming_rtt",
    },
    "test_server_selection_logging.py": {
        "TestServerSelectionLoggingStandalone::test_Failure_due_to_unreachable_server",
    },
}
GROUP_SECONDS_MAX = 600


def steady(name, test):
    unsteady = UNSTEADY.get(name, ())
    return test not in unsteady and test.split("::")[0] not in unsteady


class Standalone(Server):
    """What is tested: a server, as a set of one."""

    @property
    def primary(self):
        return self

    def end(self):
        ended = self.stop()
        assert ended == 0, f"the server ended with {ended}:\n{self.log_end()}"


class Members(ReplicaSet):
    """What is tested: a set."""

    def end(self):
        self.stop()


TESTED = {"standalone": Standalone, "replica-set": Members}


def run_group(kind, suite, files):
    """The outcomes of the group's tests: file and test to `passed` or what else became of it."""
    tested = TESTED[kind](["--setParameter", "enableTestCommands=1"])
    try:
        server = tested.primary
        outcomes = server.directory / "outcomes"
        environment = {
            **os.environ,
            "DB_IP": "127.0.0.1",
            "DB_PORT": str(server.port),
            "OUTCOMES": str(outcomes),
        }
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "pytest_outcomes"]
        command += ["-o", "addopts=", "-m", "default", "--tb=short", "--no-header", "--color=no"]
        if LEFT_OUT[kind]:
            command += ["-k", f"not ({' or '.join(LEFT_OUT[kind])})"]
        done = subprocess.run(
            command + [f"test/test_{name}.py" for name in files],
            cwd=suite,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=GROUP_SECONDS_MAX,
            text=True,
        )
        tested.end()
        # 0: all passed; 1: some failed.
        assert done.returncode in (0, 1), done.stdout[-8000:]
        return json.loads(outcomes.read_text()), done.stdout
    finally:
        tested.remove()


def run_suite(kind, archive):
    with tempfile.TemporaryDirectory(prefix="kauri-pymongo-") as directory:
        members = ["--wildcards", "*/test/*", "*/pyproject.toml"]
        subprocess.run(["tar", "-xzf", archive, "-C", directory, *members], check=True)
        [suite] = pathlib.Path(directory).iterdir()
        groups = [group.split() for group in GROUPS[kind]]
        with concurrent.futures.ThreadPoolExecutor(len(groups)) as pool:
            runs = list(pool.map(lambda files: run_group(kind, suite, files), groups))
    outcomes = {}
    for found, _ in runs:
        outcomes |= found
    return outcomes, [output for _, output in runs]


def main(installed, kind, update):
    [archive] = pathlib.Path(installed).glob("pymongo-suite/pymongo-*.tar.gz")
    listed = SuiteList(LISTS[kind])
    outcomes, outputs = run_suite(kind, archive)
    passed = {}
    for node, outcome in outcomes.items():
        file, test = node.split("::", 1)
        if outcome == "passed" and steady(pathlib.Path(file).name, test):
            passed.setdefault(pathlib.Path(file).name, set()).add(test)
    missing = {
        f"{name}::{test}: {outcomes.get(f'test/{name}::{test}', 'is not there')}"
        for name, test in listed.missing(passed)
    }
    new = listed.new(passed)
    if update:
        for name, tests in passed.items():
            listed.tests.setdefault(name, set()).update(tests)
        listed.write()
    elif new:
        print(f"{len(new)} tests pass that are not listed:", *sorted(new), sep="\n  ")
    if missing:
        print(*outputs, sep="\n")
        print(f"{len(missing)} listed tests did not pass:", *sorted(missing), sep="\n  ")
        sys.exit(1)
    print(listed.count())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], "--update" in sys.argv[3:])
