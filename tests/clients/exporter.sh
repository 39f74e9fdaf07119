#!/usr/bin/env bash
# The commands of percona's mongodb_exporter, with all collectors that a standalone supports.
source "$(dirname "$0")/lib.sh"
ran=$(with_server -- "$python" "$here/exporter/collectors.py" | tail -1)
exactly 11 "$ran"
