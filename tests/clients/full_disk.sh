#!/usr/bin/env bash
# A server with a full disk, killed with -9 and restarted.
source "$(dirname "$0")/lib.sh"
exactly 30 "$("$python" "$here/full_disk/run.py" | tail -1)"
