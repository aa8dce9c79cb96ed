/// \file
/// How a model comes onto the GPU before its framework lays hands on it: the initialisation of a
/// job (E1, E3, C1.3; data/cases/README.md `zero_init`, `load_dtype`).
///
/// A rank reads the checkpoint into host memory, all of it, and moves the model to the GPU in the
/// type of the training. Who has a copy on the host:
///
///     every rank     as a rule
///     one a node     where the framework arranges it: zero.Init (only the first rank's copy holds
///                    data), FSDP's cpu_ram_efficient_loading
///
/// Not modelled: shards of a checkpoint that are read one after the other; buffers of the reader.
#pragma once

#include <string_view>
#include <vector>

#include "sim/program/frameworks.h"

namespace zerosim {

enum class CheckpointCopies { EveryRank, OneANode };

/// The checkpoint in host memory; to be freed when the model is on the GPU.
[[nodiscard]] BufferId load_checkpoint(const FrameworkContext& context, CheckpointCopies copies);

/// The whole model on the GPU, parameter by parameter, and the checkpoint gone. \returns the
/// buffers by parameter.
[[nodiscard]] std::vector<BufferId> load_model(const FrameworkContext& context);

/// `model.to(device)` where the parameters stay as they are: one buffer of `bytes`, and in a job's
/// first step the checkpoint before it.
void allocate_parameters(const FrameworkContext& context, Bytes bytes, std::string_view owner,
                         std::string_view rule);

/// The flat tensors of stages 1 and 2 (B2.1), and frozen parameters beside them (rule 77). In a
/// job's first step the model is there before, and is flattened group by group: on the GPU if
/// there is room, so that a group is there twice, else through host memory (B2.5); 0.14 always so,
/// the BF16 optimizer never.
void allocate_flat_parameters(const FrameworkContext& context, const FlatLayout& layout);

/// The fp32 copy of `elements` elements of the model's type: `.clone().float()`, a clone between.
/// With bf16_states the clone is the copy.
void allocate_master_weights(const FrameworkContext& context, std::int64_t elements,
                             std::string_view rule);

}  // namespace zerosim
