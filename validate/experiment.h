/// \file
/// What an experiment file means: the model, the cluster and the strategy that its values resolve
/// to.
///
/// What is null or left out becomes a default that is listed among the assumptions. Where nothing
/// is known of the GPU, or it is none that is simulated, a stand-in takes its place: what depends
/// on it is not worth telling (`what_time_lacks`, `knows_gpu_memory`). The same holds for links of
/// a kind that is not known.
///
/// Environment variables that are followed: those of the allocator (environment_settings) and of
/// NCCL (nccl_environment.h); two of these here, as they say which links the cluster has:
/// NCCL_P2P_DISABLE (copies between GPUs of a node go through host memory) and NCCL_IB_DISABLE
/// (nodes talk by TCP), each if it is neither empty nor "0".
///
/// `zero_init` of FSDP is its cpu_ram_efficient_loading: false means that every rank first has the
/// whole model in host memory. A class in `fsdp_wrap` stands for the blocks of a model of which the
/// sizes alone are known.
///
/// Not modelled: `bind_cores`, `nvme_gbps`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/analysis/report.h"
#include "sim/memory/model_states.h"
#include "sim/model/model.h"
#include "sim/strategy/strategy.h"
#include "topology/cluster.h"
#include "validate/experiment_file.h"

namespace zerosim {

/// Whether a GPU is named that is not one of `unsupported_gpus`.
[[nodiscard]] bool knows_gpu(const ExperimentInputs& inputs);
/// Why no time can be told: a GPU that is not known or not simulated, a kind of links in use that
/// is not known. Empty: it can be.
[[nodiscard]] std::string what_time_lacks(const ExperimentInputs& inputs);
/// Whether it is known what the GPU holds: by its kind or by `gpu_memory_gib`.
[[nodiscard]] bool knows_gpu_memory(const ExperimentInputs& inputs);
/// Whether there is a model whose layers are known: `ref`, `config`, or sizes.
[[nodiscard]] bool knows_layers(const ExperimentInputs& inputs);

/// A preset of the GPU, of the kind of links that is asked for and with enough GPUs; else a node
/// that is spelled out. Adapters that are given share their rate evenly.
///
/// Links inside a node: nvlink, nvswitch, nvlink-mesh, pcie, pcie_no_p2p or pcie-host-staged;
/// between nodes: infiniband or ib, roce or rocev2, efa, ethernet or tcp. Capitals do not matter,
/// nor whether it is "_" or "-". Any other word is taken as not known. \throws ConfigError  at
/// `cluster`, with what parse_cluster says: an unknown GPU with the nearest
///                      name, links that it does not have.
[[nodiscard]] Cluster cluster_of(const ExperimentInputs& inputs);
/// Environment variables that cluster_of follows.
[[nodiscard]] const std::vector<std::string>& cluster_variables();

/// An empty model if none is known.
/// \throws ConfigError  at `model`, with what its reader says; or in the file of `ref`.
[[nodiscard]] Model model_of(const ExperimentInputs& inputs);

/// How batch sizes that nobody gives are taken.
enum class UnknownBatch {
  Refuse,  ///< as the framework does: "auto" that nobody fills in is an error
  One,     ///< a micro batch of one sequence, no accumulation
};

/// The DeepSpeed file with its patches, or the framework by its name. What the file states wins
/// over `training`; what it leaves out or leaves "auto" comes from there, in the mode of
/// `config_as`; a micro batch and the accumulation in every mode, where the file gives neither
/// total nor micro batch.
/// \throws ConfigError  as parse_deepspeed_config and named_strategy; without line and column if
///                      the file is patched.
[[nodiscard]] Strategy strategy_of(const ExperimentInputs& inputs, const Model& model,
                                   UnknownBatch unknown);

/// The model on its cluster with its batch and environment; assumptions are the cluster's.
/// \throws ConfigError  as cluster_of and environment_settings.
[[nodiscard]] Experiment experiment_of(const ExperimentInputs& inputs, Model model);

/// DeepSpeed's own estimate (F4) for the stage, the offload and the zero.Init of the strategy.
/// \throws ConfigError  if DeepSpeed has none: stages 0 and 1, other frameworks, no model.
[[nodiscard]] EstimatorRow estimate_of(const ExperimentInputs& inputs, const Model& model,
                                       const Strategy& strategy);

}  // namespace zerosim
