#!/usr/bin/env bash
# Beanie's own test suite from its source distribution. Exactly the tests of odm/beanie.txt must pass.
#   beanie.sh --update   rewrites the list
source "$(dirname "$0")/lib.sh"
out=$("$python" "$here/odm/suite.py" "$installed" beanie "$@") || die "$out"
echo "$out" | sed '$d'
exactly 155 "$(tail -1 <<<"$out")"
