#!/usr/bin/env bash
# The commands of percona's mongodb_exporter to a primary and to a secondary, with all collectors that a member supports.
source "$(dirname "$0")/lib.sh"
ran=$(with_set -- "$python" "$here/exporter/replica_set.py" | tail -1)
exactly 22 "$ran"
