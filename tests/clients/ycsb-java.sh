#!/usr/bin/env bash
# YCSB's own client, in Java, with the binding in ycsb/: its workloads over each transport, and what the binding
# answers besides.
#   ycsb-java.sh --build   only builds, under target/clients/ycsb; ycsb-java/run.py runs the tests from there
# What KAURI_CLIENTS_BUILT says has been built is left as it is.
source "$(dirname "$0")/lib.sh"
built=$installed/ycsb
[ -d "$built/lib" ] || die "no $built/lib: run 'scripts/bootstrap test' first"
if [ -z "${KAURI_CLIENTS_BUILT:-}" ]; then
  (cd "$root" && cargo build --release --locked -q -p kauri-client-c)
  rm -rf "$built/tests"
  mkdir -p "$built/tests"
  mvn --batch-mode --quiet --offline -Dmaven.repo.local="$installed/maven" -Dbuilt="$built" --file "$root/ycsb/pom.xml" package
  javac -Xlint:all,-path -Werror --release 11 -d "$built/tests" -cp "$built/kauri-ycsb.jar:$built/lib/*" "$here"/ycsb-java/*.java
fi
[ "${1:-}" != --build ] || exit 0

out=$("$python" "$here/ycsb-java/run.py" "$built" "$target/release") || die "$out"
sed '$d' <<<"$out"
exactly 69 "$(tail -1 <<<"$out")"
