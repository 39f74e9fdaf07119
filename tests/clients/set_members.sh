#!/usr/bin/env bash
# What an administrator does with members: leave the set, begin another one from a copy, delay a member.
source "$(dirname "$0")/lib.sh"
export PYTHONPATH=$here:$here/set
out=$(set_namespaces "$python" "$here/set/members.py") || die "$out"
sed '$d' <<<"$out"
exactly 27 "$(tail -1 <<<"$out")"
