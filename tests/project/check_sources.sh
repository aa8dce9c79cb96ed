#!/usr/bin/env bash
# Checks what the compiler does not: who may include and link whom, where third parties live, and
# what every header holds.
#
#   check_sources.sh ROOT      prints one line a violation, `file:line: what`, and exits 1 if any
set -euo pipefail
cd "$1"

# Each folder may use itself and those before it.
folders=(
  sim/base sim/model topology sim/strategy sim/program sim/engine sim/memory sim/analysis
  traces validate sim/report sim/cli
)

# Third party (pattern of what stands between < and >) and the files that may include it.
third_parties=(
  'fmt/             sim/base/.*'
  'json/            sim/base/.*'
  'boost/           topology/.*'
  'pugixml          topology/.*'
  'simgrid/         sim/engine/.*\.cpp'
  'xbt              sim/engine/.*\.cpp'
  'sqlite3          sim/analysis/.*'
  'google/protobuf/ traces/.*\.cpp'
  'simdjson         traces/.*\.cpp'
  'zlib             traces/.*\.cpp'
  'mpi\.h           (validate|sim/analysis)/.*\.cpp'
  'cuda             validate/.*\.(cpp|cu)'
  'cublas           validate/.*\.(cpp|cu)'
  'nccl             validate/.*\.(cpp|cu)'
  'nlopt            validate/.*\.cpp'
  'CLI/             sim/cli/.*'
  '(gtest|gmock|benchmark)/ tests/.*'
)

violations=0
report() {
  echo "$*"
  violations=$((violations + 1))
}

# Position of the folder that holds a path, -1 for none.
rank_of() {
  local i
  for i in "${!folders[@]}"; do
    [[ "$1/" == "${folders[i]}/"* ]] && echo "$i" && return
  done
  echo -1
}

# The same for a target's name: zerosim::engine is made in sim/engine.
rank_of_target() {
  local i
  for i in "${!folders[@]}"; do
    [[ "${folders[i]##*/}" == "$1" ]] && echo "$i" && return
  done
  echo -1
}

existing=()
for folder in sim topology traces validate tests; do
  [[ -d "$folder" ]] && existing+=("$folder")
done
mapfile -t sources < <(find "${existing[@]}" -type f \
  \( -name '*.h' -o -name '*.cpp' -o -name '*.cu' \) | LC_ALL=C sort)
mapfile -t headers < <(printf '%s\n' "${sources[@]}" | grep '\.h$' || true)
mapfile -t lists < <(find "${existing[@]}" -name CMakeLists.txt -not -path 'tests/*' | LC_ALL=C sort)

# Include directions, and headers that no folder holds.
while IFS=: read -r file line text; do
  [[ "$text" =~ \"([^\"]+)\" ]] || continue
  included=${BASH_REMATCH[1]}
  from=$(rank_of "${file%/*}")
  to=$(rank_of "${included%/*}")
  if [[ ! -f "${included/%.pb.h/.proto}" ]]; then  # protoc makes the one from the other
    report "$file:$line: includes \"$included\", which is no path from the repository's root"
  elif ((from >= 0 && to < 0)); then
    report "$file:$line: includes \"$included\", which is in none of: ${folders[*]}"
  elif ((from >= 0 && to > from)); then
    report "$file:$line: ${folders[from]} must not include ${folders[to]} (\"$included\")"
  fi
done < <(grep -nHE '^[[:space:]]*#[[:space:]]*include[[:space:]]*"' "${sources[@]}" || true)

# Link directions.
while IFS=: read -r file line text; do
  from=$(rank_of "${file%/*}")
  while read -r target; do
    to=$(rank_of_target "${target#zerosim::}")
    ((to <= from)) || report "$file:$line: ${folders[from]} must not link $target"
  done < <(grep -oE 'zerosim::[a-z0-9_]+' <<<"${text%%#*}")
done < <(grep -nHE 'zerosim::' "${lists[@]}" || true)

# Homes of third parties.
for entry in "${third_parties[@]}"; do
  read -r pattern home <<<"$entry"
  while IFS=: read -r file line text; do
    if [[ "$home" == tests/* ]]; then
      [[ "$file" == tests/* ]] && continue
    elif [[ "${file#tests/}" =~ ^$home$ ]]; then
      continue
    fi
    [[ "$text" =~ \<([^\>]+)\> ]]
    report "$file:$line: <${BASH_REMATCH[1]}> is allowed in $home only"
  done < <(grep -nHE "^[[:space:]]*#[[:space:]]*include[[:space:]]*<$pattern" "${sources[@]}" || true)
done

# What every header holds, and what none does at namespace scope (where nothing is indented).
for header in "${headers[@]}"; do
  grep -qE '^#pragma once$' "$header" || report "$header:1: lacks #pragma once"
  grep -qE '^///? .*\\file' "$header" || report "$header:1: lacks a file comment (/// \\file)"
done
if ((${#headers[@]})); then
  while IFS=: read -r file line _; do
    report "$file:$line: using namespace in a header"
  done < <(grep -nHE '^using[[:space:]]+namespace[[:space:]]' "${headers[@]}" || true)
fi

# Every example is explained.
if [[ -d examples ]]; then
  for example in examples/*; do
    grep -qF "${example##*/}" README.md 2>/dev/null ||
      report "$example:1: README.md does not mention it"
  done
fi

((violations == 0)) || { echo "$violations violations"; exit 1; }
echo "${#sources[@]} files in order"
