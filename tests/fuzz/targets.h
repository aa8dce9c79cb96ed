/// \file
/// What is fuzzed: one function a parser, and the allocator; the same for libFuzzer and for the
/// replay of corpora.
///
/// Each takes any bytes and returns; only zerosim::Error may come out of the parser. Corpora are in
/// tests/data/fuzz/<name of the function>.
#pragma once

#include <span>
#include <string>

namespace zerosim::fuzz {

struct Target {
  const char* name;
  void (*run)(const std::string& bytes);
};

/// hjson, ds_config, model, training_config, alloc_conf, environment, allocator, oom_message,
/// user_case, nccl_tests, calibration.
[[nodiscard]] std::span<const Target> targets();

/// The Hjson front alone. Its JSON is strict, and means the same.
void hjson(const std::string& bytes);
/// A DeepSpeed file, in the mode that its length picks.
void ds_config(const std::string& bytes);
/// A config.json or a module listing.
void model(const std::string& bytes);
/// YAML or JSON: told apart by its content, and as accelerate's file, TrainingArguments or
/// fsdp_config, which its length picks.
void training_config(const std::string& bytes);
/// PYTORCH_CUDA_ALLOC_CONF. What `describe` writes of it reads back as the same.
void alloc_conf(const std::string& bytes);
/// A file of environment variables. What it holds, written as `env` would, reads back as the same.
void environment(const std::string& bytes);
/// The caching allocator, driven by an event stream: the first line is a PYTORCH_CUDA_ALLOC_CONF
/// (or else the default), the rest are allocations, frees, completed events and flushes. What
/// `broken_invariant` says holds after each.
void allocator(const std::string& bytes);
/// A log with out-of-memory messages.
void oom_message(const std::string& bytes);

/// A case.json, and the clusters of its variants. No file is opened.
void user_case(const std::string& bytes);

/// A log of nccl-tests. Its operation, ranks and sizes are what they may be.
void nccl_tests(const std::string& bytes);

/// A calibration file. What is written of it reads back as the same.
void calibration(const std::string& bytes);

/// nvidia-smi's matrix. What is imported is written as a cluster file that reads back.
void topo_matrix(const std::string& bytes);
/// NCCL's topology XML likewise; and its graph XML beside a small topology.
void nccl_xml(const std::string& bytes);
/// A cluster file.
void cluster_file(const std::string& bytes);

}  // namespace zerosim::fuzz
