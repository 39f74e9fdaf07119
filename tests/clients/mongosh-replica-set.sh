#!/usr/bin/env bash
# The rs.* helpers of mongosh on a set of one that three empty servers join, with the output checked.
#   mongosh-replica-set.sh --update   rewrites the session's output
source "$(dirname "$0")/lib.sh"
KAURI_HOME=$(mktemp -d)
export KAURI_HOME
trap 'rm -rf "$KAURI_HOME"' EXIT
mongosh=$installed/node/node_modules/mongosh/bin/mongosh.js
out=$(with_set --empty 4 -- "$python" "$here/mongosh/replay.py" "$mongosh" session-replica-set.txt "$@") || die "$out"
exactly 62 "$out"
