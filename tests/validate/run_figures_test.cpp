#include "validate/run_figures.h"

#include <map>
#include <string>

#include <gtest/gtest.h>

namespace zerosim {
namespace {

using Changes = std::map<std::string, std::string>;

/// Two sequences of 1024 tokens in each of 4 micro batches of 8 ranks: 65,536 tokens a step.
RunFigures figures(const Changes& changes) {
  Changes cells = {{"id", "row"},
                   {"model", "gpt2"},
                   {"seq_len", "1024"},
                   {"gpu", "A100"},
                   {"world_size", "8"},
                   {"strategy", "ddp"},
                   {"precision", "bf16"},
                   {"micro_batch", "2"},
                   {"grad_accum", "4"},
                   {"step_time_s", ""},
                   {"tokens_per_s_per_gpu", ""},
                   {"samples_per_s", ""},
                   {"tflops_per_gpu", ""},
                   {"mfu", ""},
                   {"flop_convention", ""},
                   {"peak_memory_gb", ""},
                   {"peak_memory_kind", ""},
                   {"global_batch_tokens", ""}};
  for (const auto& [column, text] : changes) cells[column] = text;
  std::string header, row;
  for (const auto& [column, text] : cells) {
    header += (header.empty() ? "" : ",") + column;
    row += (row.empty() && header == column ? "" : ",") + ("\"" + text + "\"");
  }
  const CsvTable table = parse_csv(header + "\n" + row + "\n", "runs.csv");
  const RunReading reading = read_run(table, table.rows.front());
  EXPECT_TRUE(reading.run.has_value()) << reading.why;
  return figures_of(table, table.rows.front(), reading.run.value_or(TrainingRun()));
}

TEST(RunFigures, StepTimeFromWhatIsThere) {
  EXPECT_DOUBLE_EQ(figures({{"step_time_s", "2"}, {"samples_per_s", "1"}}).step->count(), 2);
  // 65,536 tokens / (1024 x 8 a second)
  EXPECT_DOUBLE_EQ(figures({{"tokens_per_s_per_gpu", "1024"}}).step->count(), 8);
  // A stated batch goes before the product of the others.
  EXPECT_DOUBLE_EQ(
      figures({{"tokens_per_s_per_gpu", "1024"}, {"global_batch_tokens", "32768"}}).step->count(),
      4);
  // 2 x 4 x 8 = 64 sequences / 16
  EXPECT_DOUBLE_EQ(figures({{"samples_per_s", "16"}}).step->count(), 4);
  EXPECT_EQ(figures({{"samples_per_s", "16"}}).step_from, "samples_per_s");
  EXPECT_EQ(figures({}).no_step, "no time or rate is published");
}

/// GPT-2: N = 124,439,808, V d = 50,257 x 768 = 38,597,376, L = 12, d = 768; s = 1024.
TEST(RunFigures, FlopsByConvention) {
  const Model model = load_model("gpt2");
  const auto count = [&](const char* words) {
    return flops_by_convention(words, model, 1024)->count();
  };
  const double n = 124'439'808, table = 38'597'376, attention = 12.0 * 768 * 1024;
  EXPECT_DOUBLE_EQ(count("6*N_total(incl. embeddings)*T + 12*L*d*s per token, full"),
                   6 * n + 12 * attention);
  EXPECT_DOUBLE_EQ(count("6*(N-N_emb) + 12*L*d*s per token (non-causal), no recompute"),
                   6 * (n - table) + 12 * attention);
  EXPECT_DOUBLE_EQ(count("6*(N - input embedding)*T + causal-halved attention (6*L*d*s per token)"),
                   6 * (n - table) + 6 * attention);
  // 96 x 12 x 768^2 x (1 + 1024/4608 + 50257/147456) = 679,477,248 x 1.5630...
  const double megatron = 96.0 * 12 * 768 * 768 * (1 + 1024.0 / 4608 + 50257.0 / 147456);
  EXPECT_DOUBLE_EQ(count("96*B*s*L*h^2*(1+s/6h+V/16Lh) (Megatron formula)"), megatron);
  EXPECT_DOUBLE_EQ(count("hardware FLOPs (formula with recompute assumed)"), megatron);
  EXPECT_DOUBLE_EQ(count("8*N*T (counts recompute)"), 8 * n);
  EXPECT_FALSE(flops_by_convention("not stated", model, 1024));
}

TEST(RunFigures, StepTimeFromFlops) {
  const double per_token = 8 * 124'439'808.0;
  // 65,536 tokens x FLOPs / (100e12 x 8)
  EXPECT_DOUBLE_EQ(figures({{"tflops_per_gpu", "100"}, {"flop_convention", "8*N*T"}}).step->count(),
                   65'536 * per_token / 800e12);
  EXPECT_DOUBLE_EQ(figures({{"mfu", "0.5"}, {"flop_convention", "8*N*T; peak 100"}}).step->count(),
                   65'536 * per_token / 400e12);
  // No peak for one GPU alone: that of its kind, 312e12.
  EXPECT_DOUBLE_EQ(
      figures({{"mfu", "0.5"}, {"flop_convention", "8*N*T; peak 312 (A100) and 989 (H100)"}})
          .step->count(),
      65'536 * per_token / (0.5 * 312e12 * 8));
  EXPECT_EQ(figures({{"mfu", "0.5"}, {"flop_convention", "mine"}}).no_step,
            "FLOP convention \"mine\" is not known");
}

TEST(RunFigures, Timers) {
  EXPECT_EQ(figures({}).timer, RunTimer::WholeStep);
  EXPECT_EQ(figures({{"id", "dsat-gpt2-z0-b11-ds"}}).timer, RunTimer::InsideEngine);
  EXPECT_EQ(figures({{"id", "dsat-gpt2-z0-b11-e2e"}}).timer, RunTimer::WholeStep);
  EXPECT_EQ(figures({{"id", "belle-bloom-1b1-s512-z1"}}).timer, RunTimer::MicroBatch);
  EXPECT_EQ(figures({{"id", "lf3499-z2"}}).timer, RunTimer::MicroBatch);
}

TEST(RunFigures, PeaksByKind) {
  const auto kind = [](const std::string& words) {
    return figures({{"peak_memory_gb", "10"}, {"peak_memory_kind", words}}).peak.value().kind;
  };
  EXPECT_EQ(kind("allocated (max_memory_allocated); nvidia-smi used: 1 MiB"), PeakKind::Allocated);
  EXPECT_EQ(kind("active peak (60.0 GiB in source)"), PeakKind::Active);
  EXPECT_EQ(kind("peak as printed by torchtitan (reserved; unit)"), PeakKind::Reserved);
  EXPECT_EQ(kind("process total (1 MiB in source)"), PeakKind::Process);
  EXPECT_EQ(kind("nvidia-smi style"), PeakKind::Process);
  EXPECT_FALSE(figures({{"peak_memory_gb", "10"}, {"peak_memory_kind", "as reported"}}).peak);
  EXPECT_EQ(figures({}).no_peak, "no peak is published");
  EXPECT_EQ(printed_peak(10, "reserved"), Bytes(10'000'000'000));
  EXPECT_EQ(printed_peak(10, "reserved; probably GiB"), Bytes(10'737'418'240));
}

}  // namespace
}  // namespace zerosim
