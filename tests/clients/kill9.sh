#!/usr/bin/env bash
# The real process killed with -9, 220 times.
#   kill9.sh [SEED]
source "$(dirname "$0")/lib.sh"
export PYTHONPATH=$here:$here/kill9
out=$("$python" "$here/kill9/run.py" "$@") || die "$out"
echo "$out" | sed '$d'
exactly 220 "$(tail -1 <<<"$out")"
