#!/usr/bin/env bash
# The Go driver's own tests against a replica set of three: those of go-driver/suite-replica-set.txt must pass.
#   go-driver-replica-set.sh --update   adds the tests that pass now to the list
source "$(dirname "$0")/lib.sh"
out=$("$python" "$here/go-driver/suite.py" "$installed" "$@") || die "$out"
echo "$out" | sed '$d'
exactly 614 "$(tail -1 <<<"$out")"
