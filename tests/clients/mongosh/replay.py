"""Replays a written session through mongosh and compares its output.

    replay.py MONGOSH [SESSION] [--update]

SESSION is session.txt if it is not given. The file holds statements, each on a line that starts with "> ", followed by mongosh's output. Ids, times and the like
are replaced by their kind. `--update` rewrites the file from the current output: read the difference before you
commit it.
"""

import difflib
import os
import pathlib
import re
import subprocess
import sys

mongosh, *names = [argument for argument in sys.argv[1:] if argument != "--update"]
session = pathlib.Path(__file__).with_name(names[0] if names else "session.txt")
uri = os.environ["KAURI_URI"]

VARIABLE = [
    (r"ObjectId\('[0-9a-f]{24}'\)", "ObjectId('…')"),
    (r"ISODate\('[^']*'\)", "ISODate('…')"),
    (r"UUID\('[^']*'\)", "UUID('…')"),
    (r"Timestamp\(\{ t: \d+, i: \d+ \}\)", "Timestamp(…)"),
    (r"127\.0\.0\.1:\d+", "127.0.0.1:…"),
    (r"((?:\bt|term|Term): Long\()'\d+'", r"\1…"),
    # A server that listens for RDMA as well.
    (r"127\.0\.0\.1,10\.0\.2\.15", "127.0.0.1"),
    # What a server sees of a proxy.
    (r"you: '(anonymous unix socket|10\.0\.2\.15:\d+)'", "you: '127.0.0.1:…'"),
    (r"connection \d+ to", "connection … to"),
    (r"(?m)^(\w+) +[\d.]+ (B|[KMG]iB)$", r"\1 …"),
    (r"(cursor id|id:) \d{5,}", r"\1 …"),
]

statements = [l[2:] for l in session.read_text().splitlines() if l.startswith("> ")]
ran = subprocess.run(
    ["node", mongosh, "--quiet", "--norc", uri],
    input="".join(s + "\n" for s in statements),
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    text=True,
    timeout=300,
    # No colours, no history or settings of the user who runs the tests.
    env={**os.environ, "HOME": os.environ["KAURI_HOME"], "NO_COLOR": "1", "TZ": "UTC"},
)
# What is printed before the first statement's answer is the prompt alone.
answers = re.split(r"^(?:\w+ \[direct: \w+\] )?[\w-]+> ", ran.stdout, flags=re.M)[1:]
got = ""
for statement, answer in zip(statements, answers):
    for pattern, replacement in VARIABLE:
        answer = re.sub(pattern, replacement, answer)
    answer = "\n".join(l.rstrip() for l in answer.strip("\n").splitlines())
    got += f"> {statement}\n{answer}\n" if answer else f"> {statement}\n"

if "--update" in sys.argv:
    session.write_text(got)
want = session.read_text()
if got != want:
    sys.stdout.writelines(
        difflib.unified_diff(want.splitlines(True), got.splitlines(True), "expected", "answered", n=2)
    )
    sys.exit(1)
if len(answers) < len(statements):
    sys.exit(f"{len(statements)} statements, {len(answers)} answers:\n{ran.stdout[-2000:]}")
print(len(statements))
