#!/usr/bin/env bash
# The server over WiredTiger: the Python driver's smoke suite, and 18 kills with -9.
#   wiredtiger.sh [SEED]
# Builds a server with the feature, since the default one is without (Debian's library is GPL).
source "$(dirname "$0")/lib.sh"
built=$target/wiredtiger
(cd "$root" && cargo build --locked -q --profile dev -p kauri-server --features wiredtiger)
mkdir -p "$built"
mv "$target/debug/kauri" "$built/kauri"
export KAURI=$built/kauri KAURI_FLAGS="--storageEngine wiredTiger --wiredTigerCacheSizeGB 0.25"

ran=$(with_server -- "$python" "$here/pymongo/smoke.py" | tail -1)
exactly 57 "$ran"

export PYTHONPATH=$here:$here/kill9
out=$("$python" "$here/kill9/run.py" "${1:-$RANDOM}" 10 Builds Writes Acknowledged) || die "$out"
echo "$out" | sed '$d'
exactly 18 "$(tail -1 <<<"$out")"
