/// \file
/// What environment variables say about a job.
///
/// PYTORCH_CUDA_ALLOC_CONF, and PYTORCH_ALLOC_CONF as PyTorch names it from 2.9 on, tune the
/// caching allocator. Where both are set the first counts: PyTorch looks for it first
/// (c10/core/AllocatorConfig.cpp, AcceleratorAllocatorConfig::instance), or knows no other.
///
/// OMP_NUM_THREADS is what a rank's passes over host memory run on (host_time.h); of a list of
/// nested levels the first counts. NCCL_* variables change a cluster (nccl_environment.h); those
/// that change none are listed here. All others are passed over in silence, since an environment
/// holds hundreds; unless one is a misspelling of a name known here.
#pragma once

#include <string>
#include <vector>

#include "sim/base/environment.h"
#include "sim/base/error.h"
#include "sim/memory/alloc_conf.h"

namespace zerosim {

struct EnvironmentSettings {
  AllocConf alloc_conf;
  int host_threads = 0;                  ///< OMP_NUM_THREADS; 0: not set, or only a shell knows
  std::vector<std::string> assumptions;  ///< what was taken, and what is not used yet
  std::vector<Warning> warnings;         ///< misspelt names; those of the allocator's options
};

/// Names alone: those that are misspelt, and what is set and not followed. For questions that have
/// no allocator.
[[nodiscard]] EnvironmentSettings environment_names(const Environment& environment);

/// \throws ConfigError  at the option of the allocator that is wrong; at threads that are no number
///                      from 1 up; at an allocator's value that only a shell could expand.
[[nodiscard]] EnvironmentSettings environment_settings(const Environment& environment);

}  // namespace zerosim
