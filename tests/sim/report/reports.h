/// \file
/// Reports made by hand, and what tests ask of rendered text.
#pragma once

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "sim/analysis/report.h"

namespace zerosim::testing {

inline std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

inline std::size_t widest_line(const std::string& text) {
  std::size_t widest = 0;
  for (const std::string& line : lines_of(text)) widest = std::max(widest, line.size());
  return widest;
}

/// `text` with one space for each run of spaces: what a table says, whatever its columns' widths.
inline std::string collapsed(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c != ' ' || out.empty() || out.back() != ' ') out += c;
  }
  return out;
}

inline bool is_plain_ascii(const std::string& text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return c == '\n' || (c >= ' ' && c <= '~'); });
}

/// A report whose numbers all differ, so that a swapped pair shows.
inline StrategyReport sample_report(const std::string& name, int stage) {
  using namespace literals;
  StrategyReport report;
  report.name = name;
  report.stage = stage;
  report.verdict = Verdict::Tight;
  report.memory.model_states = 11_GiB;
  report.memory.parameters = 1_GiB;
  report.memory.gradients = 2_GiB;
  report.memory.optimizer_states = 3_GiB;
  report.memory.activations = 4_GiB;
  report.memory.temporary_buffers = 5_GiB;
  report.memory.live_parameters = 6_GiB;
  report.memory.logits = 512_MiB;
  report.memory.fragmentation = 256_MiB;
  report.memory.context = 768_MiB;
  report.memory.steady_allocated = 21_GiB;  // 1 + 2 + 3 + 4 + 5 + 6
  report.memory.after_step = 7_GiB;
  report.memory.peak_allocated = 21_GiB;
  report.memory.peak_reserved = 21_GiB + 256_MiB;  // + fragmentation
  report.memory.flushes = 2;
  report.memory.flush_time = Seconds(0.0123);
  report.memory.peak_part = "steady step";
  report.memory.peak_phase = "bwd";
  report.memory.peak_op = "ipg_bucket in model.layers.1.mlp";
  report.memory.capacity = 40_GiB;
  report.memory.rank = 3;
  report.time.step = Seconds(0.1);
  report.time.compute = Seconds(0.06);
  report.time.exposed_communication = Seconds(0.025);
  report.time.host = Seconds(0.01);
  report.time.optimizer = Seconds(0.005);
  report.time.forward = Seconds(0.02);
  report.time.backward = Seconds(0.04);
  report.time.communication = Seconds(0.045);
  report.communication.collectives = 12;
  report.communication.bytes_sent_per_rank = Bytes(3'000'000'000);
  report.communication.inter_node_bytes = Bytes(1'500'000'000);
  report.communication.psi = 2.5;
  report.communication.paper_psi = 2;
  report.communication.by_operation["all_reduce"] = {2, Bytes(1'000'000'000)};
  report.communication.by_operation["reduce_scatter_tensor"] = {10, Bytes(2'000'000'000)};
  report.throughput = {8000, 2000, 4, 123.5, 0.396, 0.41};
  report.assumptions = {"sequence 2048: --seq is not given; our default"};
  return report;
}

inline Comparison sample_comparison(const std::vector<std::string>& names) {
  Comparison comparison;
  comparison.model = "llama-2-7b";
  comparison.cluster = "dgx-a100-40";
  comparison.world_size = 4;
  comparison.parameters = 6'738'415'616;
  comparison.sequence = 2048;
  int stage = 0;
  for (const std::string& name : names) {
    comparison.strategies.push_back(sample_report(name, stage++ % 4));
  }
  comparison.sentences = {"Choose " + names.front() + ": it is the fastest that fits."};
  return comparison;
}

}  // namespace zerosim::testing
