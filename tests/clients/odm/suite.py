"""Runs the tests in the packages of object mappers, and compares the results with a list.

    suite.py INSTALLED beanie|mongoengine|mongoose [--update]

NAME.txt names the tests that pass. The run fails if one of them fails, is skipped or is missing, or if a test outside
the list passes. `--update` rewrites the list. The last line is the number of tests that passed.
"""

import concurrent.futures
import functools
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

from kauri_server import Server
from suite_list import SuiteList

HERE = pathlib.Path(__file__).parent
GROUP_SECONDS_MAX = 600
# Each group has a server of its own; they run side by side. A test of Beanie sets up a hundred models, which takes
# Python half a second: only files that send the server more than other files do are here.
BEANIE = [
    [
        f"odm/documents/test_{name}.py"
        for name in "aggregate bulk_write create delete distinct find sync update".split()
    ],
    ["migrations", *(f"odm/query/test_{name}.py" for name in "aggregate delete find update update_methods".split())]
    + [f"odm/{name}.py" for name in "test_views test_cursor test_concurrency documents/test_revision".split()],
]
# The source distribution holds the tests of the top level only. Left out are the files that need no server.
MONGOENGINE = [["test_connection.py", "test_context_managers.py", "test_dereference.py", "test_signals.py"]]
# The mapper's own tests are in no package; those of two plugins are. What these leave out is tested beside this file.
MONGOOSE = [
    "mongoose-delete/test/index.js",
    "mongoose-paginate-v2/tests/index.js",
    "mongoose.test.js",
]


def unpack(installed, name, directory):
    """The source distribution of `name`, unpacked."""
    [archive] = installed.glob(f"sources/{name}-*.tar.gz")
    subprocess.run(["tar", "-xzf", archive, "-C", directory], check=True)
    [source] = pathlib.Path(directory).iterdir()
    return source


def with_server(run):
    """What `run` returns for a server, which must end in order."""
    server = Server(["--setParameter", "enableTestCommands=1"])
    try:
        result = run(server)
        ended = server.stop()
        assert ended == 0, f"the server ended with {ended}:\n{server.log_end()}"
        return result
    finally:
        server.remove()


def finish(command, directory, environment):
    """Runs a test runner to its end; returns what it printed. That tests fail is for the list to judge."""
    return subprocess.run(
        command,
        cwd=directory,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=GROUP_SECONDS_MAX,
        text=True,
    ).stdout


def run_pytest(source, plugin, files, server):
    """The outcomes by file and test, and what pytest printed."""
    outcomes = server.directory / "outcomes"
    environment = {
        "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parent), str(source)]),
        "OUTCOMES": str(outcomes),
        "KAURI_URI": server.uri,
        "mongodb_dsn": server.uri + "beanie_db",
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "pytest_outcomes", "-p", plugin]
    command += ["-o", "addopts=", "--tb=short", "--no-header", "--color=no"]
    printed = finish(command + [f"tests/{name}" for name in files], source, environment)
    assert outcomes.exists(), printed[-8000:]
    found = {}
    for node, outcome in json.loads(outcomes.read_text()).items():
        file, test = node.removeprefix("tests/").split("::", 1)
        found[file, test] = outcome
    return found, printed


def run_mocha(modules, file, server):
    """The outcomes by file and test, and what mocha printed."""
    own, report = HERE / file, server.directory / "report.json"
    environment = {
        "NODE_PATH": str(modules),
        "KAURI_URI": server.uri,
        "MONGOOSE_TEST_URI": server.uri + "mongoose_test",
    }
    command = ["node", str(modules / "mocha/bin/mocha.js"), "--exit", "--timeout", "60000"]
    command += ["--require", str(HERE / "mongoose_setup.js"), str(own if own.exists() else modules / file)]
    command += ["--reporter", "json", "--reporter-option", f"output={report}"]
    printed = finish(command, modules, environment)
    assert report.exists(), printed[-8000:]
    found = {}
    results = json.loads(report.read_text())
    for kind, outcome in (("passes", "passed"), ("pending", "skipped"), ("failures", "failed")):
        for test in results[kind]:
            title = test["fullTitle"]
            while (file, title) in found:
                title += " again"
            found[file, title] = outcome
            if outcome == "failed":
                printed += f"\n{title}: {test['err'].get('stack', test['err'])}"
    return found, printed


def run_groups(installed, name):
    """The outcomes of all groups of a suite."""
    with tempfile.TemporaryDirectory(prefix=f"kauri-{name}-") as directory:
        if name == "mongoose":
            modules = installed / "odm/node_modules"
            runs = [functools.partial(run_mocha, modules, file) for file in MONGOOSE]
        else:
            source = unpack(installed, name, directory)
            if name == "mongoengine":
                shutil.copy(HERE / "mongoengine_utils.py", source / "tests/utils.py")
                (source / "tests/__init__.py").touch()
            groups = {"beanie": BEANIE, "mongoengine": MONGOENGINE}[name]
            runs = [functools.partial(run_pytest, source, f"{name}_plugin", files) for files in groups]
        with concurrent.futures.ThreadPoolExecutor(len(runs)) as pool:
            results = list(pool.map(with_server, runs))
    outcomes = {}
    for found, _ in results:
        outcomes |= found
    return outcomes, [printed for _, printed in results]


def main(installed, name, update):
    listed = SuiteList(HERE / f"{name}.txt")
    outcomes, outputs = run_groups(pathlib.Path(installed), name)
    passed = {}
    for (file, test), outcome in outcomes.items():
        if outcome == "passed":
            passed.setdefault(file, set()).add(test)
    if update:
        print(*outputs, sep="\n")
        listed.tests = passed
        listed.write()
    missing = listed.missing(passed)
    new = listed.new(passed)
    if missing or new:
        print(*outputs, sep="\n")
        print(f"{len(missing)} listed tests did not pass:")
        print(*sorted(f"  {f}::{t}: {outcomes.get((f, t), 'is not there')}" for f, t in missing), sep="\n")
        print(f"{len(new)} tests passed that are not listed:", *sorted(new), sep="\n  ")
        sys.exit(1)
    print(listed.count())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], "--update" in sys.argv[3:])
