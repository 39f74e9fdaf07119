#!/usr/bin/env bash
# The benchmark's workloads equal YCSB's: the draws and results of YCSB's core are compared with ours
# (crates/bench/examples/ycsb_core). No server takes part.
source "$(dirname "$0")/lib.sh"
jars=$installed/ycsb/lib
[ -f "$jars/core-0.17.0.jar" ] || die "no $jars: run 'scripts/bootstrap test' first"
built=$installed/ycsb-core
rm -rf "$built"
mkdir -p "$built"
javac -Xlint:all -Werror -d "$built" -cp "$jars/*" "$here"/ycsb-core/*.java
compare=$(cd "$root" && scripts/test_binaries | awk '$1 == "bench/example/ycsb_core" { print $2 }')
samples=$built/samples

# Random numbers whose state is known are compared one for one, so the state has to be within reach.
mapfile -t presets < <("$compare" presets)
[ "${#presets[@]}" = 6 ] || die "not six presets"
java --add-opens java.base/java.lang=ALL-UNNAMED -cp "$built:$jars/*" Samples "${presets[@]}" >"$samples"

# The ordinary client, loading with several threads: how many each inserts, and which keys there are.
pairs=workload=site.ycsb.workloads.CoreWorkload,recordcount=1000,insertstart=20,insertcount=103
# shellcheck disable=SC2046
loaded=$(java -cp "$built:$jars/*" site.ycsb.Client -load -threads 4 -db Recorder \
  $(printf -- '-p %s ' ${pairs//,/ }) 2>/dev/null) || die "the client: $loaded"
of() { sed -n "s/^@$1\t//p" <<<"$loaded" | sort "${@:2}" | paste -sd' '; }
printf 'load\t%s\t4\t%s\t%s\n' "$pairs" "$(of inserts -n)" "$(of key)" >>"$samples"

out=$("$compare" "$samples") || die "$out"
sed '$d' <<<"$out"
exactly 22436 "$(tail -1 <<<"$out")"
