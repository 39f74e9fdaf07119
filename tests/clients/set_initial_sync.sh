#!/usr/bin/env bash
# A set of three processes whose members copy the data: new ones, emptied ones, one that was away for too long.
source "$(dirname "$0")/lib.sh"
export PYTHONPATH=$here:$here/set
out=$(set_namespaces "$python" "$here/set/initial_sync.py") || die "$out"
sed '$d' <<<"$out"
exactly 13 "$(tail -1 <<<"$out")"
