#!/usr/bin/env bash
# The drivers' smoke suites and the session of mongosh through `kauri proxy`, which itself goes through
# shared memory: the drivers know nothing of it. Then what it adds to a request, for the eye.
source "$(dirname "$0")/lib.sh"
export NODE_PATH=$installed/node/node_modules
through() { # [--unix] -- COMMAND…
  with_server --setParameter enableTestCommands=1 -- "$python" "$here/kauri_proxy.py" "$@"
}
ran=$(through -- "$python" "$here/pymongo/smoke.py" | tail -1)
exactly 57 "$ran"
ran=$(through --unix -- "$python" "$here/pymongo/smoke.py" | tail -1)
exactly 57 "$ran"
ran=$(through -- "$python" "$here/pymongo/large.py" | tail -1)
exactly 8 "$ran"
out=$(through -- node --test --test-reporter=tap "$here/node/smoke.test.js") || die "$out"
count() { awk -v what="$1" '$1 == "#" && $2 == what { print $3 }' <<<"$out"; }
[ "$(count fail)$(count skipped)$(count todo)$(count cancelled)" = 0000 ] || die "$out"
exactly 37 "$(count pass)"
KAURI_HOME=$(mktemp -d)
export KAURI_HOME
trap 'rm -rf "$KAURI_HOME"' EXIT
mongosh=$installed/node/node_modules/mongosh/bin/mongosh.js
out=$(through -- "$python" "$here/mongosh/replay.py" "$mongosh") || die "$out"
exactly 105 "$out"
out=$(with_server -- "$python" "$here/pymongo/latency.py")
echo "$out" | sed '$d'
exactly 10 "$(tail -1 <<<"$out")"
