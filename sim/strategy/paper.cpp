#include "sim/base/text.h"
#include "sim/strategy/strategy.h"

namespace zerosim {

Strategy as_in_paper(Strategy strategy) {
  ZeroOptions& zero = strategy.zero;
  if (strategy.framework != Framework::DeepSpeed || zero.stage == 0) {
    return strategy;
  }
  if (zero.stage == 3) {
    zero.param_persistence_threshold = 0;
    zero.prefetch_bucket_size = 0;
    zero.max_reuse_distance = 0;
    strategy.assumptions.emplace_back(
        "--accounting paper: each parameter is gathered in forward and in backward (3 Psi, F2), "
        "without DeepSpeed's persistence, prefetch and reuse");
  } else {
    zero.true_reduce_scatter = true;
    strategy.assumptions.emplace_back(
        "--accounting paper: each gradient bucket is reduce-scattered (2 Psi with the gather of "
        "parameters, F2), where DeepSpeed all-reduces it by default (B3.6)");
  }
  return strategy;
}

}  // namespace zerosim
