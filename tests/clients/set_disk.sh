#!/usr/bin/env bash
# A set of three processes: a member whose disk is full, as a secondary and as the primary, and one that was away.
source "$(dirname "$0")/lib.sh"
export PYTHONPATH=$here:$here/set
out=$(set_namespaces "$python" "$here/set/disk.py") || die "$out"
sed '$d' <<<"$out"
exactly 13 "$(tail -1 <<<"$out")"
