#include "sim/memory/model_states.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "sim/base/error.h"
#include "sim/base/text.h"

namespace zerosim {

namespace {

/// floor(count x factor / divisor).
Bytes share(std::int64_t count, std::int64_t factor, std::int64_t divisor) {
  return Bytes((Bytes(count) * factor).count() / divisor);
}

void check(const EstimatorInput& input) {
  if (input.parameters < 0 || input.largest_layer < 0) {
    throw ConfigError(format("found {} parameters and {} in the largest layer, expected 0 or more",
                             input.parameters, input.largest_layer));
  }
  if (input.gpus_per_node < 1 || input.nodes < 1) {
    throw ConfigError(format("found {} nodes of {} GPUs, expected at least 1 node of 1 GPU",
                             input.nodes, input.gpus_per_node));
  }
}

// DeepSpeed multiplies host memory by additional_buffer_factor = 1.5. The factors below are 1.5
// times those of F4, so that all is integer: 1.5 x (4, 16, 18) = 6, 24, 27. Its int() cuts, as
// `share`.

/// estimate_zero2_model_states_mem_needs of runtime/zero/stage_1_and_2.py.
EstimatorRow stage_2(const EstimatorInput& in, bool offload) {
  const std::int64_t gpus_per_node = in.gpus_per_node;
  const std::int64_t world_size = gpus_per_node * in.nodes;
  EstimatorRow row;
  row.stage = 2;
  row.offload_optimizer = offload;
  row.gpu = Bytes(in.parameters) * 2;
  if (offload) {
    row.cpu = Bytes(in.parameters) * std::max<std::int64_t>(6 * world_size, 24);
  } else {
    row.gpu += share(in.parameters, 18, world_size);
    row.cpu = Bytes(in.parameters) * (6 * gpus_per_node);
  }
  return row;
}

/// estimate_zero3_model_states_mem_needs of runtime/zero/stage3.py.
EstimatorRow stage_3(const EstimatorInput& in, bool offload_param, bool offload_optimizer,
                     bool zero_init) {
  const std::int64_t gpus_per_node = in.gpus_per_node;
  const std::int64_t world_size = gpus_per_node * in.nodes;
  EstimatorRow row{3, offload_optimizer, offload_param, zero_init, {}, {}};
  row.gpu = Bytes(in.largest_layer) * 4;
  // Every rank of a node loads the whole model, unless it is built inside zero.Init.
  const Bytes whole_copies = Bytes(in.parameters) * (6 * gpus_per_node);
  if (!offload_optimizer) {
    row.gpu += share(in.parameters, 18, world_size);
    row.cpu = zero_init ? Bytes(in.largest_layer) * (6 * gpus_per_node) : whole_copies;
    return row;
  }
  if (!offload_param) row.gpu += share(in.parameters, 2, world_size);
  const Bytes node_share = share(in.parameters, offload_param ? 27 : 24, in.nodes);
  row.cpu = zero_init ? node_share : std::max(whole_copies, node_share);
  return row;
}

}  // namespace

StateBytes state_bytes(Precision precision) {
  return precision == Precision::Fp32 ? StateBytes{4, 4, 0, 8} : StateBytes{2, 2, 4, 8};
}

const std::vector<Sharding>& shardings() {
  static const std::vector<Sharding> kShardings = {{"ddp", false, false, false},
                                                   {"zero1", false, false, true},
                                                   {"zero2", false, true, true},
                                                   {"zero3", true, true, true}};
  return kShardings;
}

double paper_model_states(double parameters, const Sharding& sharding, int world_size,
                          const StateBytes& bytes) {
  if (!std::isfinite(parameters) || parameters < 0) {
    throw ConfigError(format("found {} parameters, expected 0 or more", parameters));
  }
  if (world_size < 1) {
    throw ConfigError(format("found a world of {} ranks, expected at least 1", world_size));
  }
  int sharded = 0;
  if (sharding.parameters) sharded += bytes.parameters;
  if (sharding.gradients) sharded += bytes.gradients;
  if (sharding.optimizer_states) sharded += bytes.master + bytes.moments;
  return parameters * (bytes.total() - sharded) + parameters * sharded / world_size;
}

const std::vector<int>& usual_world_sizes() {
  static const std::vector<int> kWorldSizes = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024};
  return kWorldSizes;
}

std::vector<ShardingRow> sharding_table(double parameters, std::span<const int> world_sizes,
                                        const StateBytes& bytes) {
  constexpr double kLimit = 0x1p63;  // the first double that Bytes cannot hold
  std::vector<ShardingRow> rows;
  for (const int world_size : world_sizes) {
    ShardingRow row{world_size, {}};
    for (const Sharding& sharding : shardings()) {
      const double states = paper_model_states(parameters, sharding, world_size, bytes);
      if (states >= kLimit) {
        throw ConfigError(
            format("the states of {} parameters are more bytes than 64 bits hold, "
                   "expected a smaller model",
                   parameters));
      }
      row.per_gpu.emplace_back(std::llround(states));
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string paper_figure(double gigabytes) {
  if (gigabytes >= 100) return format("{:.0f}", std::floor(gigabytes));
  int decimals = 2;
  if (gigabytes >= 10) decimals = 1;
  for (double limit = 0.1; gigabytes > 0 && gigabytes < limit; limit /= 10) ++decimals;
  const double unit = std::pow(10.0, decimals);
  std::string text = format("{:.{}f}", std::floor(gigabytes * unit + 0.5) / unit, decimals);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text;
}

Bytes older_stage_2_estimate(const EstimatorInput& input) {
  check(input);
  const Bytes parameters(input.parameters);
  const std::int64_t gpus = static_cast<std::int64_t>(input.nodes) * input.gpus_per_node;
  return parameters * 4 + Bytes((parameters * 16).count() / gpus);
}

std::vector<EstimatorRow> deepspeed_estimates(int stage, const EstimatorInput& input) {
  check(input);
  if (stage != 2 && stage != 3) {
    throw ConfigError(format("found stage {}, expected 2 or 3: DeepSpeed estimates these", stage));
  }
  try {
    if (stage == 2) return {stage_2(input, true), stage_2(input, false)};
    return {stage_3(input, true, true, true),   stage_3(input, true, true, false),
            stage_3(input, false, true, true),  stage_3(input, false, true, false),
            stage_3(input, false, false, true), stage_3(input, false, false, false)};
  } catch (const std::overflow_error&) {
    throw ConfigError(
        format("{} parameters on {} nodes of {} GPUs need more bytes than 64 bits "
               "hold, expected a smaller model or world",
               input.parameters, input.nodes, input.gpus_per_node));
  }
}

}  // namespace zerosim
