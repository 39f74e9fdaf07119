"""A checked-in list of the passing tests of an external suite.

The list names tests by file: a line `FILE COUNT`, then one indented line for each test. Lines that begin with `#` are
kept.
"""


class SuiteList:
    """The tests of the list at `path`, by file."""

    def __init__(self, path):
        self.path = path
        self.tests = {}
        counts = {}
        for line in path.read_text().splitlines():
            if line.startswith("#") or not line:
                continue
            if line.startswith(" "):
                self.tests[name].add(line.strip())
            else:
                name, count = line.rsplit(" ", 1)
                counts[name] = int(count)
                self.tests[name] = set()
        for name, listed in self.tests.items():
            assert counts[name] == len(listed), f"{name}: {counts[name]} is not the count of its lines, {len(listed)}"

    def count(self):
        return sum(len(tests) for tests in self.tests.values())

    def missing(self, passed):
        """File and test of what is listed and not in `passed`."""
        return {(name, test) for name, tests in self.tests.items() for test in tests - passed.get(name, set())}

    def new(self, passed):
        """`FILE::TEST` of what is in `passed` and not listed."""
        return {f"{name}::{test}" for name, tests in passed.items() for test in tests - self.tests.get(name, set())}

    def write(self):
        lines = [line for line in self.path.read_text().splitlines() if line.startswith("#")]
        for name in sorted(self.tests):
            lines.append(f"{name} {len(self.tests[name])}")
            lines += [f"  {test}" for test in sorted(self.tests[name])]
        self.path.write_text("\n".join(lines) + "\n")


def judge(path, outcomes, printed, update):
    """Compares outcomes, by file and test, with the list at `path`, to which `update` adds what has passed. The program
    fails with what was printed if a listed test did not pass, and else tells the count."""
    listed, passed = SuiteList(path), {}
    for (name, test), outcome in outcomes.items():
        if outcome == "passed":
            passed.setdefault(name, set()).add(test)
    if update:
        for name, tests in passed.items():
            listed.tests.setdefault(name, set()).update(tests)
        listed.write()
    missing, new = listed.missing(passed), listed.new(passed)
    if new:
        print(f"{len(new)} tests pass that are not listed:", *sorted(new), sep="\n  ")
    if missing:
        print(*printed, sep="\n")
        print(f"{len(missing)} listed tests did not pass:")
        print(*sorted(f"  {n}::{t}: {outcomes.get((n, t), 'is not there')}" for n, t in missing), sep="\n")
        sys.exit(1)
    print(listed.count())
