#!/usr/bin/env bash
# The server with WiredTiger: the Python driver's smoke suite, 18 kills with -9, and the comparison of the engines at a
# small size.
#   wiredtiger.sh [SEED]
# The server is that of the tests, which has the feature; the default build lacks it (Debian's library is GPL).
source "$(dirname "$0")/lib.sh"
built=$target/wiredtiger
(cd "$root" && KAURI_TEST_FEATURES=kauri-server/wiredtiger scripts/test_binaries >/dev/null)
mkdir -p "$built"
cp "$target/debug/kauri" "$built/kauri"
export KAURI=$built/kauri KAURI_FLAGS="--storageEngine wiredTiger --wiredTigerCacheSizeGB 0.25"

ran=$(with_server -- "$python" "$here/pymongo/smoke.py" | tail -1)
exactly 57 "$ran"

export PYTHONPATH=$here:$here/kill9
out=$("$python" "$here/kill9/run.py" "${1:-$RANDOM}" 10 Builds Writes Acknowledged) || die "$out"
echo "$out" | sed '$d'
exactly 18 "$(tail -1 <<<"$out")"

table=$(env -u KAURI_FLAGS "$KAURI" bench engine --quick --json "$built/bench.json" 2>/dev/null) ||
  die "kauri bench engine failed"
echo "$table"
grep -q '^check: ' <<<"$table" || die "the table has no check of WiredTiger"
exactly 36 "$("$python" - "$built/bench.json" <<'PYTHON'
import json, sys
lines = json.load(open(sys.argv[1]))
both = [line for line in lines if line["pmlog"] is not None]
assert sum(line["wiredTiger"] is not None for line in lines) >= 18, lines
print(len(both))
PYTHON
)"
