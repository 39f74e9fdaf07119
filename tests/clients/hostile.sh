#!/usr/bin/env bash
# Expensive requests of some clients slow down others only slightly, and a server in a control group of 1 GB survives
# them. HOSTILE_SECONDS sets the duration of each load (10; ten minutes is 600).
source "$(dirname "$0")/lib.sh"
export PYTHONPATH=$here
"$python" "$here/hostile/run.py"
