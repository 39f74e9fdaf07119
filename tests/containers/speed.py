"""The cost of a container: the two tables of *Performance evaluation of MongoDB with RDMA in Singularity-based
container environments*, and its run with 500 MB of memory.

speed.py CONTAINERS [options]: the directory of the definitions. Servers on the host, in a container, and in containers
with memory limits alternate under `kauri bench run`: 100 % Put (a whole record is written), one client, a row for each
size. Needs root to set the limits of control groups. RDMA is measured if KAURI_RDMA_ADDRESS is set.
"""

import argparse
import contextlib
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import urllib.parse

from images import Apptainer, Podman, check, running
from kauri_server import RDMA_ADDRESS, free_port

MB = 1 << 20
# Of the paper: latencies by size, 1 KB to 128 KB, on the host and in Singularity. It says milliseconds; microseconds
# are meant (its 312 for RDMA are the 318 us of the RDMA paper).
PAPER = {
    ("host", "rdma"): (312, 317, 328, 351, 388, 445, 601, 871),
    ("host", "IPoIB"): (661, 693, 742, 768, 940, 1125, 1494, 2368),
    ("host", "tcp"): (657, 771, 926, 982, 1076, 1254, 1836, 2788),
    ("Singularity", "rdma"): (351, 339, 346, 379, 411, 493, 649, 975),
    ("Singularity", "IPoIB"): (780, 916, 1018, 1122, 1142, 1350, 1683, 2462),
    ("Singularity", "tcp"): (807, 820, 959, 1041, 1161, 1313, 1892, 2892),
}
PAPER_SIZES_KB = (1, 2, 4, 8, 16, 32, 64, 128)


class Host:
    """The server as it is, on the host."""

    sockets = "/tmp"

    def __init__(self, directory):
        self.data = directory / "host"
        self.data.mkdir()

    def start(self, port, limit, *options):
        return [os.environ["KAURI"], "serve", "--dbpath", self.data, "--port", str(port), *options]


def uri(transport, port, sockets):
    own = "sharedMemory=off&rdma=off"
    socket = urllib.parse.quote(f"{sockets}/mongodb-{port}.sock", safe="")
    return {
        "tcp": f"mongodb://127.0.0.1:{port}/?{own}",
        "unix": f"mongodb://{socket}/?{own}",
        "rdma": f"mongodb://{RDMA_ADDRESS}:{port}/?rdma=require",
    }[transport]


def group_of(port):
    """The memory group of the process that listens at this port: its directory, and the file of its limit."""
    ran = subprocess.run(["ss", "-Hltnp", f"sport = :{port}"], check=True, capture_output=True, text=True).stdout
    pid = int(ran.split("pid=")[1].split(",")[0])
    for line in open(f"/proc/{pid}/cgroup"):
        _, controllers, path = line.strip().split(":", 2)
        if "memory" in controllers.split(","):
            return pathlib.Path(f"/sys/fs/cgroup/memory{path}"), "memory.limit_in_bytes"
    return pathlib.Path(f"/sys/fs/cgroup{path}"), "memory.max"


def in_force(port):
    """What the kernel says of the limit and of what it had to do for it, and whether it has killed."""
    group, file = group_of(port)
    limit = int((group / file).read_text())
    if file == "memory.max":
        text = (group / "memory.events").read_text()
        killed = int(text.split("oom_kill ")[1].split()[0])
    else:
        control = (group / "memory.oom_control").read_text()
        killed = int(control.split("oom_kill ")[1].split()[0])
        text = f"failcnt {(group / 'memory.failcnt').read_text().strip()} " + control
    return limit, " ".join(text.split()), killed


def run_file(arguments, servers):
    """servers: label, transport, port, its sockets' folder, limit in MB or None."""
    lines = ["name = 'what a container costs: 100 % Put'", f"rounds = {arguments.rounds}"]
    lines += [f"warmUpSeconds = {arguments.seconds / 5}", f"seconds = {arguments.seconds}"]
    for label, transport, port, sockets, limit in servers:
        lines += ["[[server]]", f"label = '{label}, {transport}'", f"uri = '{uri(transport, port, sockets)}'"]
        lines += [f"transport = '{transport}'", "topology = 'standalone'"]
        lines += [f"memoryLimitMB = {limit}"] if limit else []
    for kb in arguments.sizes_kb:
        whole = f"fieldcount = 1, fieldlength = {kb << 10}, writeallfields = true"
        puts = "readproportion = 0, updateproportion = 1, scanproportion = 0, insertproportion = 0"
        lines += ["[[workload]]", f"label = '{kb} KB'"]
        lines += [f"properties = {{ recordcount = {arguments.records}, {whole}, {puts} }}"]
    return "\n".join(lines) + "\n"


def puts(figures):
    """By workload and server: each round's mean of a Put, in microseconds."""
    of = {}
    for row in figures["rows"]:
        kinds = [round["kinds"] for round in row["rounds"]]
        for round, kind in zip(row["rounds"], kinds):
            check("operations", round["operations"], kind["UPDATE"]["count"])
            check("errors", round["errors"], 0)
        of[row["workload"], row["server"]] = [kind["UPDATE"]["meanMicros"] for kind in kinds]
    return of


def print_tables(arguments, labels, of):
    sizes = [f"{kb} KB" for kb in arguments.sizes_kb]
    line = "{:<34}" + "{:>9}" * len(sizes)
    for transport in arguments.transports:
        print("\n" + line.format(f"{transport}, us", *sizes))
        for label in labels:
            means = [statistics.median(of[size, f"{label}, {transport}"]) for size in sizes]
            print(line.format(label, *(f"{mean:.1f}" for mean in means)))
        for where in ("host", "Singularity"):
            if (where, transport) in PAPER:
                known = dict(zip(PAPER_SIZES_KB, PAPER[where, transport]))
                print(line.format(f"the paper's {where}", *(known.get(kb, "-") for kb in arguments.sizes_kb)))
        print(line.format("times the host's", *[""] * len(sizes)))
        for label in labels[1:]:
            ratios = []
            for size in sizes:
                pairs = zip(of[size, f"{label}, {transport}"], of[size, f"{labels[0]}, {transport}"])
                ratios.append(statistics.median(own / host for own, host in pairs))
            print(line.format(f"  {label}", *(f"{ratio:.3f}" for ratio in ratios)) + f"   median {statistics.median(ratios):.3f}")
        if ("Singularity", transport) in PAPER:
            pairs = zip(PAPER["Singularity", transport], PAPER["host", transport])
            known = dict(zip(PAPER_SIZES_KB, (f"{own / host:.3f}" for own, host in pairs)))
            print(line.format("  the paper's Singularity", *(known.get(kb, "-") for kb in arguments.sizes_kb)))


def places(arguments, directory, after):
    """Label, what starts it, limit in MB: the host first."""
    context = directory / "containers"
    shutil.copytree(arguments.containers, context, ignore=shutil.ignore_patterns("image"))
    subprocess.run([context / "root", os.environ["KAURI"], context / "image"], check=True)
    found = [("host", Host(directory), None)]
    if "podman" in arguments.ways:
        podman = Podman(directory)
        after.callback(podman.remove)
        podman.build(context)
        found.append(("podman", podman, None))
        found += [(f"podman, {limit} MB", podman.beside(f"limited-{limit}"), limit) for limit in arguments.limits_mb]
    if "apptainer" in arguments.ways:
        Apptainer.build(context / "kauri.def", context / "image")
        for limit in (None, *arguments.limits_mb):
            label = f"as Apptainer, {limit} MB" if limit else "as Apptainer"
            way = Apptainer(context / "image", directory / f"apptainer-{limit}", "unlimited" if RDMA_ADDRESS else None)
            after.callback(way.remove)
            found.append((label, way, limit))
    return found


def parsed():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    listed = lambda text: text.split(",")
    numbers = lambda text: [int(number) for number in text.split(",")]
    parser.add_argument("containers", type=pathlib.Path)
    parser.add_argument("--ways", type=listed, default=["podman", "apptainer"])
    parser.add_argument("--transports", type=listed, default=["tcp"] + (["rdma"] if RDMA_ADDRESS else []))
    parser.add_argument("--sizes-kb", type=numbers, default=PAPER_SIZES_KB)
    parser.add_argument("--limits-mb", type=numbers, default=[500, 4096], help="the paper's, and plenty")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--records", type=int, default=400)
    parser.add_argument("--segment-mb", type=int, default=64, help="of the servers' logs: smaller where there is little room")
    parser.add_argument("--json", type=pathlib.Path, help="keeps the figures of `kauri bench run` there")
    return parser.parse_args()


def main(arguments):
    with contextlib.ExitStack() as after:
        # An ordinary user reads from it, below a place that everybody may enter.
        directory = pathlib.Path(tempfile.mkdtemp(prefix="kauri-containers-", dir=os.environ.get("TMPDIR", "/var/tmp")))
        after.callback(shutil.rmtree, directory, ignore_errors=True)
        directory.chmod(0o755)
        options = ["--bind_ip", f"127.0.0.1,{RDMA_ADDRESS}", "--rdma", "require"] if RDMA_ADDRESS else []
        options += ["--segmentSizeMB", str(arguments.segment_mb)]
        servers, limited = [], {}
        found = places(arguments, directory, after)
        for label, way, limit in found:
            port = free_port()
            after.enter_context(running(way.start(port, limit and limit * MB, *options)))
            servers += [(label, transport, port, way.sockets, limit) for transport in arguments.transports]
            if limit:
                limited[label] = port, limit
        file, json_file = directory / "run.toml", arguments.json or directory / "figures.json"
        file.write_text(run_file(arguments, servers))
        subprocess.run([os.environ["KAURI"], "bench", "run", file, "--json", json_file], check=True, stdout=sys.stderr)
        of = puts(json.loads(json_file.read_text()))
        check("rows", len(of), len(servers) * len(arguments.sizes_kb))
        check("rounds", {len(rounds) for rounds in of.values()}, {arguments.rounds})
        print_tables(arguments, [label for label, _, _ in found], of)
        print()
        for label, (port, asked) in limited.items():
            limit, told, killed = in_force(port)
            check(f"{label}: the limit", limit, asked * MB)
            check(f"{label}: killed", killed, 0)
            print(f"{label}: memory limit {limit} bytes; {told}")


if __name__ == "__main__":
    main(parsed())
