/// \file
/// A published training run, one row of a table, as an experiment: what is trained, how and where.
///
/// Columns are those of data/measured/training_runs.csv, whose README says what each holds; a table
/// may lack any of them, as memory.csv does, and a blank cell says nothing. What words stand for:
///
/// - model_json: the file's name is a preset's; else `model` is one; else the shape is built from
///   layers, hidden, heads, kv_heads, ffn, vocab and mlp_type (swiglu3: Llama; gelu2, relu2: GPT-2,
///   or GPT-BigCode with one head of keys), its head tied where params_b says so;
/// - gpu: as the README looks names up in gpus.csv;
/// - strategy: names of `named_strategy`; of FSDP the version that `framework` names;
/// - precision: "pure bf16" (all of it), "fp32 params", "fp32 states" or "fp32 master" with 16-bit
///   computation, "fp32 reduce", "fp16", "bf16", "fp32"; "fp8" or "float8": products of Linears in
///   fp8;
/// - optimizer: Adam or AdamW, "fused" or not;
/// - activation_checkpointing: none, full, "selective (per-op)";
/// - offload: optimizer_cpu (or optimizer), params_cpu, joined by "+"; none;
/// - pure_dp, compile: yes, no; flash_attention: those, FA1 to FA4, cuDNN (FlashVersion; a mere yes
///   leaves it to the framework); what follows in brackets is not read, capitals do not matter;
/// - notes and peak_memory_kind: "Liger kernels", "fused Triton cross-entropy", "Liger fused linear
///   cross-entropy", "foak-fast-kernels", "foak-fast-kernels-liger".
///
/// A framework fixes what its users do not state (run_habits.h): torchtitan's fused optimizer and
/// kept last block, accelerate's use_orig_params and checkpoints around units, Megatron-LM's fused
/// kernels and padded vocabulary, fp32 where a file for DeepSpeed enables no other type.
///
/// Skipped with a reason: other parallelism than data parallelism, GPUs that are not NVIDIA's,
/// frameworks whose code is not PyTorch's or DeepSpeed's, adapters, optimizers other than Adam,
/// offloaded activations, rows without model, batch or sequence, words that are not listed here,
/// more than 131,072 ranks.
///
/// Not modelled: gathers in fp8; the row's assumptions say so. Links: run_machine.h.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/analysis/report.h"
#include "sim/strategy/strategy.h"
#include "validate/csv.h"

namespace zerosim {

struct TrainingRun {
  Experiment experiment;
  Strategy strategy;
  std::vector<std::string> assumptions;  ///< what the row leaves open, one sentence each
};

/// Either a run, or why there is none.
struct RunReading {
  std::optional<TrainingRun> run;
  std::string why;
};

/// \throws TraceError  at a cell that should hold a number and does not.
[[nodiscard]] RunReading read_run(const CsvTable& table, const std::vector<CsvCell>& row);

/// The cell of the column `name`; "" if the table has no such column.
[[nodiscard]] const std::string& cell_or_blank(const CsvTable& table,
                                               const std::vector<CsvCell>& row,
                                               std::string_view name);

}  // namespace zerosim
