#!/usr/bin/env bash
# Counts the code of commits, for works that must not let it grow: files, lines without comments and blanks, types in
# headers, and the ten structs with most data members; of lib with apps, and of tests.
#   scripts/count_code.sh [COMMIT...]    default: HEAD
# A type is a struct, class, union or enum with a body, nested ones too. Good enough to compare two commits: strings are
# emptied before comments are cut, and a member is a line that ends with ; and has no bracket before its value.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- HEAD
count='
function cut(line) {
  gsub(/"([^"\\]|\\.)*"/, "\"\"", line)
  if (inside) { if (!sub(/^.*\*\//, "", line)) return ""; inside = 0 }
  gsub(/\/\*.*\*\//, "", line)
  if (sub(/\/\*.*$/, "", line)) inside = 1
  if (file !~ /\.txt$/) sub(/\/\/.*$/, "", line)
  gsub(/^[ \t]+|[ \t]+$/, "", line)
  return line
}
FNR == 1 { file = FILENAME; inside = depth = 0; ++files }
{
  line = cut($0)
  if (line == "") next
  ++lines
  if (file !~ /\.(h|cuh)$/) next
  if (line ~ /^(template <.*> *)?(struct|class|union|enum)( class)? [A-Za-z_0-9:<>, ]*\{/) {
    ++types
    name[depth + 1] = line
    sub(/ *(:.*)?\{.*/, "", name[depth + 1])
    members[depth + 1] = 0
  } else if (depth > 0 && name[depth] != "" && line ~ /;$/ && line !~ /^(using|friend|static|return|typedef|inline|const(expr|eval))/) {
    head = line
    sub(/[={].*$/, "", head)
    if (head !~ /\(/) {
      while (gsub(/<[^<>]*>/, "", line)) {}
      while (gsub(/\{[^{}]*\}|\([^()]*\)/, "", line)) {}
      members[depth] += gsub(/,/, "", line) + 1
    }
  }
  opened = gsub(/\{/, "", $0); closed = gsub(/\}/, "", $0)
  for (; closed > opened; --closed) {
    if (name[depth] ~ /^(struct|class)/) print members[depth], name[depth], file >> widest
    delete name[depth--]
  }
  for (; opened > closed; --opened) if (++depth && line !~ /(struct|class|union|enum)[^;]*\{/) name[depth] = ""
}
END { printf "  %d files, %d lines, %d types in headers\n", files, lines, types }'
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for commit in "$@"; do
  mkdir -p "$work/$commit"
  git archive "$commit" lib apps tests | tar -x -C "$work/$commit"
  for part in "lib apps" tests; do
    echo "$(git log -1 --format=%h "$commit"), $part"
    widest=$work/widest
    : >"$widest"
    # shellcheck disable=SC2086
    (cd "$work/$commit" && find $part -type f | grep -E '\.(h|cpp|cu|cuh|def|js|css|html|txt)$' | grep -v CMakeLists.txt |
      sort | xargs awk -v widest="$widest" "$count")
    sort -rn "$widest" | awk 'NR <= 10 { print "    " $0 }'
  done
done
