#!/usr/bin/env bash
# Holds check_sources.sh to its word: a small tree in order passes, and each wrong line in it is
# named with its place.
set -euo pipefail
check=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/check_sources.sh
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
failures=0

# put FILE LINE...
put() {
  mkdir -p "$tree/$(dirname "$1")"
  printf '%s\n' "${@:2}" >"$tree/$1"
}

fresh_tree() {
  rm -rf "${tree:?}"/*
  put sim/base/units.h '/// \file' '/// Units.' '#pragma once' '#include <fmt/core.h>'
  put sim/base/CMakeLists.txt 'zerosim_library(base SOURCES units.cpp)'
  put sim/engine/engine.h '/// \file' '/// Engine.' '#pragma once' '#include "sim/base/units.h"'
  put sim/engine/engine.cpp '#include "sim/engine/engine.h"' '#include <simgrid/s4u.hpp>'
  put sim/engine/CMakeLists.txt 'zerosim_library(engine PUBLIC zerosim::base)  # not zerosim::cli'
  put topology/cluster.h '/// \file' '/// Cluster.' '#pragma once' '#include <boost/graph/graph_traits.hpp>'
  put traces/proto/trace.proto 'syntax = "proto2";'
  put traces/trace.h '/// \file' '/// Traces.' '#pragma once' '#include "sim/engine/engine.h"'
  put traces/trace.cpp '#include <google/protobuf/message.h>' '#include "traces/proto/trace.pb.h"'
  put tests/sim/engine/engine_test.cpp '#include <gtest/gtest.h>' '#include "sim/engine/engine.h"'
  put examples/cluster.json '{}'
  put README.md 'A cluster file: examples/cluster.json'
}

# expect_violation TEXT: the check of the tree fails with TEXT as its only complaint.
expect_violation() {
  local output status=0
  output=$(bash "$check" "$tree" 2>&1) || status=$?
  if [[ $status != 1 || "$output" != "$1"$'\n''1 violations' ]]; then
    printf 'expected (status 1):\n%s\nfound (status %s):\n%s\n' "$1" "$status" "$output"
    failures=$((failures + 1))
  fi
}

fresh_tree
output=$(bash "$check" "$tree" 2>&1 || true)
if [[ "$output" != '7 files in order' ]]; then
  printf 'a tree in order is not accepted:\n%s\n' "$output"
  failures=1
fi

fresh_tree
put sim/base/units.cpp '' '#include "sim/engine/engine.h"'
expect_violation 'sim/base/units.cpp:2: sim/base must not include sim/engine ("sim/engine/engine.h")'

fresh_tree
put sim/base/units.cpp '#  include "engine.h"'
expect_violation 'sim/base/units.cpp:1: includes "engine.h", which is no path from the repository'\''s root'

fresh_tree
put tests/sim/engine/helper.h '/// \file' '#pragma once'
put sim/engine/engine.cpp '#include "tests/sim/engine/helper.h"'
expect_violation 'sim/engine/engine.cpp:1: includes "tests/sim/engine/helper.h", which is in none of: sim/base sim/model topology sim/strategy sim/program sim/engine sim/memory sim/analysis traces validate sim/report sim/cli'

fresh_tree
put sim/engine/engine.cpp '#include "traces/proto/trace.pb.h"'
expect_violation 'sim/engine/engine.cpp:1: sim/engine must not include traces ("traces/proto/trace.pb.h")'

fresh_tree
put sim/base/CMakeLists.txt 'zerosim_library(base' '  PUBLIC zerosim::topology)'
expect_violation 'sim/base/CMakeLists.txt:2: sim/base must not link zerosim::topology'

fresh_tree
put topology/cluster.cpp '#include <json/value.h>'
expect_violation 'topology/cluster.cpp:1: <json/value.h> is allowed in sim/base/.* only'

fresh_tree
put sim/engine/engine.h '/// \file' '#pragma once' '#include <simgrid/s4u.hpp>'
expect_violation 'sim/engine/engine.h:3: <simgrid/s4u.hpp> is allowed in sim/engine/.*\.cpp only'

fresh_tree
put sim/engine/engine.cpp '#include <gtest/gtest.h>'
expect_violation 'sim/engine/engine.cpp:1: <gtest/gtest.h> is allowed in tests/.* only'

fresh_tree
put sim/base/units.h '/// \file' '#include <vector>'
expect_violation 'sim/base/units.h:1: lacks #pragma once'

fresh_tree
put sim/base/units.h '// Units.' '#pragma once'
expect_violation 'sim/base/units.h:1: lacks a file comment (/// \file)'

fresh_tree
put sim/base/units.h '/// \file' '#pragma once' 'using namespace std;'
expect_violation 'sim/base/units.h:3: using namespace in a header'

fresh_tree
put examples/quickstart.sh 'true'
expect_violation 'examples/quickstart.sh:1: README.md does not mention it'

((failures == 0)) || exit 1
echo 'Every violation is caught.'
