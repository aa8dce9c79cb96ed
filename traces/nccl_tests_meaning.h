/// \file
/// What the rows of a log of nccl-tests mean: which operation, how many ranks, what `size` and
/// `algbw` count (nccl_tests.h has the rules).
#pragma once

#include <string>
#include <vector>

#include "traces/nccl_tests.h"

namespace zerosim {

/// What is known of a table beside its figures.
struct NcclTestsEvidence {
  bool reduces = false;           ///< `redop` is there and is not "none"
  bool rooted = false;            ///< `root` is there and is not -1
  bool in_place_checked = false;  ///< some row has a number under the second `#wrong`
  bool out_of_place_checked = false;
  struct Program {
    NcclTest test = NcclTest::AllReduce;
    int line = 0;
  };
  std::vector<Program> programs;  ///< named before the table
};

/// Bytes of one element; 0 for an unknown type.
[[nodiscard]] int nccl_type_size(std::string_view type);
[[nodiscard]] const std::vector<std::string>& nccl_type_names();

/// Fills operation, ranks, columns and notes; repairs sizes and algbw. The points, devices and
/// file of the log must be there.
void find_meaning(NcclTestsLog& log, const NcclTestsEvidence& evidence);

}  // namespace zerosim
