#!/usr/bin/env bash
# YCSB's own Java client with the binding in ycsb/ on a replica set: loads, updates, secondaries' reads, a step-down.
source "$(dirname "$0")/lib.sh"
"$here/ycsb-java.sh" --build
out=$("$python" "$here/ycsb-java/replica_set.py" "$installed/ycsb" "$target/release") || die "$out"
sed '$d' <<<"$out"
exactly 5 "$(tail -1 <<<"$out")"
