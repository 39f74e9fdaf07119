#!/usr/bin/env bash
# The MongoDB database tools dump, restore, import, export and watch a replica set.
source "$(dirname "$0")/lib.sh"
out=$(with_set -- "$python" "$here/mongo-tools/run.py" "$installed/mongo-tools") || die "$out"
echo "$out" | sed '$d'
exactly 9 "$(tail -1 <<<"$out")"
