#!/usr/bin/env bash
# Beanie's own suite, as its source distribution carries it: the tests of odm/beanie.txt pass, and no others.
#   beanie.sh --update   writes the list anew
source "$(dirname "$0")/lib.sh"
out=$("$python" "$here/odm/suite.py" "$installed" beanie "$@") || die "$out"
echo "$out" | sed '$d'
exactly 155 "$(tail -1 <<<"$out")"
