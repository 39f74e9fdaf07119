#!/usr/bin/env bash
# The Go driver's bulk writes over several collections.
source "$(dirname "$0")/lib.sh"
out=$(with_server -- "$installed/go-driver/bulk" -test.v 2>&1) || die "$out"
exactly 11 "$(grep -c -- '--- PASS: ' <<<"$out")"
