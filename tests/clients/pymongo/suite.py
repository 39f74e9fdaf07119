"""Runs the tests of pymongo's source distribution that need a server, and compares the results with a list.

    suite.py INSTALLED [--update]

suite.txt names the tests that pass, by file and with their count. The run fails if one of them fails, is skipped or is
missing. The list only grows: `--update` adds new passing tests and removes none. Then the count in pymongo-suite.sh
must be raised as well. The last line is the number of listed tests that passed.
"""

import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from kauri_server import Server
from suite_list import SuiteList

HERE = pathlib.Path(__file__).parent
LIST = HERE / "suite.txt"
# Each group has a server of its own; they run side by side.
GROUPS = [
    "retryable_reads_unified cursor collection collection_management database examples custom_types "
    "typing dbref raw_bson json_util_integration index_management versioned_api",
    "crud_unified crud_v1 read_write_concern_spec command_monitoring command_logging gridfs "
    "gridfs_bucket gridfs_spec grid_file bulk client_bulk_write operations results write_concern",
    "unified_format csot monitoring operation_id_retry retryable_reads retryable_writes "
    "retryable_writes_unified streaming_protocol versioned_api_integration run_command",
    "server_selection_logging sdam_monitoring_spec sessions_unified session causal_consistency "
    "create_entities handshake_unified collation read_concern comment transactions_unified",
]
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


def run_group(suite, number, files):
    """The outcomes of the group's tests: file and test to `passed` or what else became of it."""
    server = Server(["--setParameter", "enableTestCommands=1"])
    try:
        outcomes = server.directory / "outcomes"
        environment = {
            **os.environ,
            "DB_IP": "127.0.0.1",
            "DB_PORT": str(server.port),
            "OUTCOMES": str(outcomes),
        }
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "pytest_outcomes"]
        command += ["-o", "addopts=", "-m", "default", "--tb=short", "--no-header", "--color=no"]
        done = subprocess.run(
            command + [f"test/test_{name}.py" for name in files],
            cwd=suite,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=GROUP_SECONDS_MAX,
            text=True,
        )
        ended = server.stop()
        assert ended == 0, f"the server of group {number} ended with {ended}:\n{server.log_end()}"
        # 0: all passed; 1: some failed.
        assert done.returncode in (0, 1), done.stdout[-8000:]
        return json.loads(outcomes.read_text()), done.stdout
    finally:
        server.remove()


def run_suite(archive):
    with tempfile.TemporaryDirectory(prefix="kauri-pymongo-") as directory:
        members = ["--wildcards", "*/test/*", "*/pyproject.toml"]
        subprocess.run(["tar", "-xzf", archive, "-C", directory, *members], check=True)
        [suite] = pathlib.Path(directory).iterdir()
        groups = [group.split() for group in GROUPS]
        with concurrent.futures.ThreadPoolExecutor(len(groups)) as pool:
            runs = list(pool.map(run_group, [suite] * len(groups), range(len(groups)), groups))
    outcomes = {}
    for found, _ in runs:
        outcomes |= found
    return outcomes, [output for _, output in runs]


def main(installed, update):
    [archive] = pathlib.Path(installed).glob("pymongo-suite/pymongo-*.tar.gz")
    listed = SuiteList(LIST)
    outcomes, outputs = run_suite(archive)
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
    main(sys.argv[1], "--update" in sys.argv[2:])
