"""The differences that scripts/guard reports as worse: planted differences of two servers' counts."""

import copy
import importlib.machinery
import importlib.util
import pathlib
import sys

sys.dont_write_bytecode = True
path = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "guard"
loader = importlib.machinery.SourceFileLoader("guard", str(path))
guard = importlib.util.module_from_spec(importlib.util.spec_from_loader("guard", loader))
loader.exec_module(guard)

BEFORE = {
    "instructions": {"find": 7500.0, "insert": 15000.0, "update": 19000.0},
    "calls": {name: {"recvfrom": 1.0, "sendto": 1.0, "epoll_wait": 1.01} for name in guard.OPERATIONS},
}


def worse(change):
    after = copy.deepcopy(BEFORE)
    change(after)
    return guard.judge(BEFORE, after)[1]


def instructions(times):
    return lambda after: after["instructions"].update(find=7500 * times)


def calls(**changed):
    return lambda after: after["calls"]["update"].update(changed)


assert worse(instructions(1)) == []
assert worse(instructions(1.02)) == worse(instructions(0.5)) == []
assert worse(instructions(1.05)) == ["find: 5.0% more instructions"]
assert worse(calls(sendto=1.05)) == worse(calls(sendto=0.0)) == []
assert worse(calls(futex=1.0)) == ["update: more system calls: futex +1.00"]
# One in place of another is none more.
assert worse(calls(sendto=0.0, sendmsg=1.0)) == []
assert guard.bson({"a": 1, "b": [{"c": "x"}]}) == (
    b"\x25\0\0\0\x10a\0\1\0\0\0\4b\0\x16\0\0\0\3" + b"0\0\x0e\0\0\0\2c\0\2\0\0\0x\0\0\0\0"
), guard.bson({"a": 1, "b": [{"c": "x"}]})
print("8 differences judged")
