#!/usr/bin/env bash
# The primary of a set of three processes killed with -9, and made to step down, and all members restarted one after the
# other, under writes: no error, nothing lost.
#   set_failover.sh [--kills N] [--step-downs N] [--restarts N] [--seed X]
source "$(dirname "$0")/lib.sh"
export PYTHONPATH=$here:$here/set
set_namespaces "$python" "$here/set/failover.py" "$@"
