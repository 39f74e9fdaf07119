#!/usr/bin/env bash
# A server whose disk is full, killed with -9 and started again.
source "$(dirname "$0")/lib.sh"
exactly 30 "$("$python" "$here/full_disk/run.py" | tail -1)"
