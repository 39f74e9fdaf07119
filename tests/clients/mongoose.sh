#!/usr/bin/env bash
# mongoose, by the tests that packages of its plugins carry and by those beside this script: the tests of
# odm/mongoose.txt pass, and no others.
#   mongoose.sh --update   writes the list anew
source "$(dirname "$0")/lib.sh"
out=$("$python" "$here/odm/suite.py" "$installed" mongoose "$@") || die "$out"
echo "$out" | sed '$d'
exactly 230 "$(tail -1 <<<"$out")"
