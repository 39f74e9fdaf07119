#!/usr/bin/env bash
# go-ycsb loads and runs the workloads A to F.
source "$(dirname "$0")/lib.sh"
out=$(with_server -- "$python" "$here/go-ycsb/workloads.py" "$installed/go-ycsb") || die "$out"
echo "$out" | sed '$d'
exactly 6 "$(tail -1 <<<"$out")"
