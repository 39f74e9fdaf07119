#!/usr/bin/env bash
# A replica set of three processes under kills, pauses and cut links; clients' histories are checked.
#   set_campaign.sh [--seconds S] [--runs N] [--rate R] [--seed X] [--recovery-seconds-max S]
source "$(dirname "$0")/lib.sh"
export PYTHONPATH=$here:$here/set
checker=$target/release/examples/check_lists
[ -x "$checker" ] || die "no $checker: run 'cargo build --release -p kauri-consistency --examples' first"
set_namespaces "$python" "$here/set/campaign.py" "$checker" "$@"
