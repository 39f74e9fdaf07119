#!/usr/bin/env bash
# The C client: its header as C and C++, its symbols, the example programs of its documentation, and its tests over each
# transport, also under a memory checker.
#   c.sh --build   only builds, under target/clients/c; c/run.py runs the tests from there
# Parts named in KAURI_CLIENTS_BUILT are not built again.
source "$(dirname "$0")/lib.sh"
client=$root/crates/client-c
prefix=$installed/c
built=$prefix/tests
if [ -z "${KAURI_CLIENTS_BUILT:-}" ]; then
  (cd "$root" && cargo build --release --locked -q -p kauri-client-c)
  rm -rf "$prefix"
  mkdir -p "$built"
  "$client/install" "$prefix"
fi

# What the library gives out is what the header declares.
header=$prefix/include/kauri.h library=$prefix/lib/libkauri.so.0
declared=$(grep -v '^ \*' "$header" | grep -oE '\bkauri_[a-z_]+\(' | tr -d '(' | sort)
exported=$(nm -D --defined-only "$library" | awk '{ print $3 }' | sort)
diff <(echo "$declared") <(echo "$exported") || die "the header and the symbols differ"
[ "$(wc -l <<<"$declared")" = 13 ] || die "not 13 functions: $declared"
objdump -p "$library" | grep -q 'SONAME *libkauri.so.0$' || die "another SONAME"

export PKG_CONFIG_PATH=$prefix/lib/pkgconfig
[ "$(pkg-config --modversion kauri)" = "$(sed -n 's/^#define KAURI_VERSION "\(.*\)"/\1/p' "$header")" ] ||
  die "kauri.pc has another version"
read -ra flags < <(pkg-config --cflags kauri)
read -ra shared < <(pkg-config --libs kauri)
read -ra static < <(pkg-config --libs --static kauri | sed 's/-lkauri/-l:libkauri.a/')
strict=(-Wall -Wextra -Werror -pedantic -O1 -g)
sources=("$here"/c/*.c)
c11=(cc -std=c11 -D_POSIX_C_SOURCE=200809L "${strict[@]}" "${flags[@]}" -pthread)
if [ -z "${KAURI_CLIENTS_BUILT:-}" ]; then
  "${c11[@]}" "${sources[@]}" "${shared[@]}" -o "$built/tests"
  "${c11[@]}" "${sources[@]}" "${static[@]}" -o "$built/tests-static"
fi
[ "${1:-}" != --build ] || exit 0

echo '#include <kauri.h>' >"$built/header.cc"
c++ -std=c++17 "${strict[@]}" "${flags[@]}" -c "$built/header.cc" -o "$built/header.o"

# The program of the documents, by the document's own words.
sed -n '/^```c$/,/^```$/p' "$root/docs/c-client.md" | sed '/^```/d' >"$built/example.c"
"${c11[@]}" "$built/example.c" "${shared[@]}" -o "$built/example"
said=$(LD_LIBRARY_PATH=$prefix/lib with_server -- sh -c '"$1" "$KAURI_URI"' - "$built/example") || die "the example: $said"
[ "$said" = "1 document inserted over tcp" ] || die "the example says: $said"

out=$("$python" "$here/c/run.py" "$prefix") || die "$out"
exactly 172 "$(tail -1 <<<"$out")"
