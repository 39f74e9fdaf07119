#!/usr/bin/env bash
# The images of containers/: their contents, built and run by podman, and by the steps of Apptainer's definition. Also
# checks that the cost of a container can be measured (scripts/bench_containers).
source "$(dirname "$0")/clients/lib.sh"
out=$("$python" "$root/tests/containers/run.py" "$root/containers" "$target/release/libkauri.so") || die "$out"
sed '$d' <<<"$out"
count=$(tail -1 <<<"$out")
table=$("$python" "$root/tests/containers/speed.py" "$root/containers" --sizes-kb 1,128 --rounds 1 --seconds 0.5 \
  --transports tcp,unix --records 20 --limits-mb 500) || die "$table"
# The host and four containers over two transports, and both limits.
[ "$(grep -cE '^(host|podman|as Apptainer)[^:]* +[0-9.]+ +[0-9.]+$' <<<"$table")" = 10 ] || die "$table"
[ "$(grep -cE '^(podman|as Apptainer), 500 MB: memory limit 524288000 bytes; ' <<<"$table")" = 2 ] || die "$table"
exactly 6 $((count + 1))
