#!/usr/bin/env bash
# YCSB's own Java client with the binding in ycsb/: its workloads over each transport, and the binding's other
# behaviour.
#   ycsb-java.sh --build   only builds, under target/clients/ycsb; ycsb-java/run.py runs the tests from there
# Parts named in KAURI_CLIENTS_BUILT are not built again.
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
