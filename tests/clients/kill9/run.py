"""Kills the server with -9 during its work, repeatedly, and checks its data.

    run.py [SEED [SHARE [KIND…]]]

Each life has its own server and data directory; several lives run in parallel. After each death all acknowledged
changes must be present, and each unacknowledged change must be present completely or not at all. Prints a line per
life; the last line is the number of deaths. SHARE divides their number, KINDs select kinds of lives.
"""

import concurrent.futures
import multiprocessing
import random
import sys
import time
import traceback

import lives

# Kind of life, how many of it, and in how many deaths of each what it is about must be under way.
PLAN = [
    (lives.Builds, 1, 20),
    (lives.Moves, 1, 20),
    (lives.Writes, 4, 30),
    (lives.Ring, 1, 20),
    (lives.Acknowledged, 1, 40),
]
AT_ONCE = 4


def live(kind, seed, wanted):
    """Lives one life until `wanted` of its deaths count; answers its deaths, or what went wrong."""
    life = None
    began = time.monotonic()
    try:
        life = kind(seed)
        while life.under_way < wanted:
            assert life.deaths < 4 * wanted, f"only {life.under_way} of {life.deaths} deaths count"
            life.cycle()
        life.end()
        took = time.monotonic() - began
        print(f"{kind.__name__} {seed}: {life.deaths} deaths, {life.under_way} count, {took:.0f} s", flush=True)
        return life.under_way, None
    except BaseException:
        where = f" in {life.server.directory}, port {life.server.port}" if life else ""
        if life and life.server.process.poll() is None:
            life.server.kill()
        return 0, f"{kind.__name__} of seed {seed}{where}:\n{traceback.format_exc()}"


def main():
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}", flush=True)
    share = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    plan = [life for life in PLAN if life[0].__name__ in (sys.argv[3:] or life[0].__name__)]
    jobs = [(kind, f"{seed}/{n}", wanted // share) for kind, many, wanted in plan for n in range(many)]
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(AT_ONCE, mp_context=context) as pool:
        results = [future.result() for future in [pool.submit(live, *job) for job in jobs]]
    failures = [failure for _, failure in results if failure]
    if failures:
        sys.exit("\n".join(failures))
    print(sum(deaths for deaths, _ in results))


if __name__ == "__main__":
    main()
