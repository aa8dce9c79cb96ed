/// \file
/// ZeRO-3 leaf modules: blocks that are fetched and released as one unit (C2.5b; rule 89 of
/// deepspeed_recorded.md).
#pragma once

#include <cstdint>
#include <vector>

#include "sim/model/model.h"

namespace zerosim {

/// What `stage3_module_granularity_threshold` makes leaves: a module with children and parameters
/// below it, at most 1e9 of them, whose granularity, floor(parameters of the subtree / modules of
/// the subtree below which there are some, itself included, containers left out), is at most
/// `threshold`; the topmost ones (C2.5b). Example: a GPT block of 49,984 elements has 9 such
/// modules (itself, two norms, attention with 2 Linears, MLP with 2): 5,553.
[[nodiscard]] std::vector<ModuleId> leaf_modules_by_granularity(const Model& model,
                                                                std::int64_t threshold);

/// The model with these modules as leaves; one inside another is left out.
///
/// A leaf owns all parameters below it, in order of registration; what is below it has no hooks.
/// Its gradients arrive together when its backward is done, in order of registration, zeros
/// standing in for parameters that were not used.
[[nodiscard]] Model with_leaf_modules(Model model, const std::vector<ModuleId>& leaves);

}  // namespace zerosim
