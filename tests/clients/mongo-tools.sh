#!/usr/bin/env bash
# The MongoDB database tools dump, restore, import, export and watch.
source "$(dirname "$0")/lib.sh"
out=$(with_server -- "$python" "$here/mongo-tools/run.py" "$installed/mongo-tools") || die "$out"
echo "$out" | sed '$d'
exactly 9 "$(tail -1 <<<"$out")"
