#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/sim/model/test_support.h"

namespace zerosim {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

const BatchShape kBatch{.micro_batch = 2, .sequence = 8};  // T = 16, x = 2

/// Cost of the first operator of the module.
OperatorCost cost_of(const Model& model, const std::string& module,
                     const BatchShape& batch = kBatch) {
  for (const Operator& op : model.operators) {
    if (model.modules[op.module.index()].name == module) return operator_cost(model, op, batch);
  }
  throw ConfigError("no operator in " + module);
}

Bytes total(const std::vector<Kernel>& kernels) {
  Bytes sum;
  for (const Kernel& kernel : kernels) sum += kernel.bytes;
  return sum;
}

Model small_llama() {
  return parse_model(R"({"model_type": "qwen2", "hidden_size": 32, "intermediate_size": 48,
      "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100})",
                     "small.json");
}

TEST(OperatorCost, LinearHasThreeGemmsAndABiasReduction) {
  const OperatorCost cost = cost_of(small_llama(), "model.layers.0.self_attn.k_proj");
  ASSERT_THAT(cost.forward, SizeIs(1));  // m = T = 16, n = out = 2 x 8, k = in = 32
  EXPECT_EQ(cost.forward[0].m, 16);
  EXPECT_EQ(cost.forward[0].n, 16);
  EXPECT_EQ(cost.forward[0].k, 32);
  EXPECT_EQ(cost.forward[0].flops, Flops(2 * 16 * 16 * 32));
  EXPECT_EQ(cost.forward[0].bytes, Bytes(2 * (16 * 32 + 32 * 16 + 16 * 16)));
  // dgrad m = T, n = in, k = out; k_proj shares its input with q_proj: the two gradients are added.
  ASSERT_THAT(cost.backward_input, SizeIs(2));
  EXPECT_EQ(cost.backward_input[0].n, 32);
  EXPECT_EQ(cost.backward_input[0].k, 16);
  EXPECT_EQ(cost.backward_input[1].bytes, Bytes(3 * 2 * 16 * 32));
  EXPECT_EQ(cost.saved, Bytes(0));
  // bias first, then wgrad m = out, n = in, k = T
  ASSERT_THAT(cost.backward_weights, SizeIs(2));
  EXPECT_EQ(cost.backward_weights[0].bytes, Bytes(2 * 16 * 16));
  EXPECT_EQ(cost.backward_weights[1].m, 16);
  EXPECT_EQ(cost.backward_weights[1].n, 32);
  EXPECT_EQ(cost.backward_weights[1].k, 16);
  EXPECT_EQ(cost.input, Bytes(2 * 16 * 32));
  EXPECT_EQ(cost.output, Bytes(2 * 16 * 16));
}

TEST(OperatorCost, FrozenWeightsHaveNoGradientKernels) {
  Model model = small_llama();
  for (Parameter& parameter : model.parameters) parameter.trainable = false;
  for (const Operator& op : model.operators) {
    EXPECT_THAT(operator_cost(model, op, kBatch).backward_weights, IsEmpty());
  }
}

TEST(OperatorCost, TiedHeadComputesAWeightGradientThatArrivesElsewhere) {
  const Model model = load_model("gpt2");
  const Operator& head = model.operators[model.operators.size() - 2];
  EXPECT_EQ(model.modules[head.module.index()].name, "lm_head");
  EXPECT_THAT(head.gradients, IsEmpty());
  EXPECT_THAT(operator_cost(model, head, kBatch).backward_weights, SizeIs(1));
}

TEST(OperatorCost, RmsNormMovesWhatEightEagerKernelsMove) {
  const OperatorCost cost = cost_of(small_llama(), "model.norm");
  // bf16, an element: cast 2+4, square 4+4, mean 4, scale 4+4, cast 4+2, weight 2+2 = 36
  EXPECT_EQ(total(cost.forward), Bytes(36 * 16 * 32));
  EXPECT_EQ(cost.saved, Bytes((4 + 2) * 16 * 32));
  // fp32 casts nothing: square 8, mean 4, scale 8, weight 8
  BatchShape fp32 = kBatch;
  fp32.compute = Dtype::F32;
  EXPECT_EQ(total(cost_of(small_llama(), "model.norm", fp32).forward), Bytes(28 * 16 * 32));
}

int launches(const std::vector<Kernel>& kernels) {
  int sum = 0;
  for (const Kernel& kernel : kernels) sum += kernel.launches;
  return sum;
}

BatchShape with_kernels(ElementwiseKernels kernels) {
  BatchShape batch = kBatch;
  batch.kernels = kernels;
  return batch;
}

/// Of all operators of a kind.
OperatorCost sum_of(const Model& model, OperatorKind kind, const BatchShape& batch) {
  OperatorCost sum;
  for (const Operator& op : model.operators) {
    if (op.kind != kind) continue;
    const OperatorCost cost = operator_cost(model, op, batch);
    sum.forward.insert(sum.forward.end(), cost.forward.begin(), cost.forward.end());
    sum.backward_input.insert(sum.backward_input.end(), cost.backward_input.begin(),
                              cost.backward_input.end());
  }
  return sum;
}

// T = 16, hidden 32, x = 2. Fused: the norm reads and writes (2 x), backward reads its input and
// the gradient and writes one (3 x), each with 4 B of statistics a token.
TEST(OperatorCost, FusedRmsNormMovesItsInputAndOutput) {
  for (const auto kernels :
       {ElementwiseKernels::FusedNorms, ElementwiseKernels::Liger, ElementwiseKernels::Compiled}) {
    const OperatorCost cost = cost_of(small_llama(), "model.norm", with_kernels(kernels));
    EXPECT_EQ(total(cost.forward), Bytes(16 * 32 * 4 + 16 * 4));
    EXPECT_EQ(total(cost.backward_input), Bytes(16 * 32 * 6 + 16 * 4));
    EXPECT_EQ(launches(cost.forward), 1);
  }
}

// Width 48. Eager: silu 2 x, its gradient 3 x; the product 3 x, its gradient 6 x. One kernel: 3 x
// and 5 x. The norms' fused kernels alone leave SwiGLU as it is.
TEST(OperatorCost, SwigluOfOneKernel) {
  const Model model = small_llama();
  const auto bytes = [&](ElementwiseKernels kernels, bool backward) {
    Bytes sum;
    for (const OperatorKind kind : {OperatorKind::Activation, OperatorKind::Multiply}) {
      const OperatorCost cost = sum_of(model, kind, with_kernels(kernels));
      sum += total(backward ? cost.backward_input : cost.forward);
    }
    return sum;
  };
  const std::int64_t elements = std::int64_t{16} * 48;
  EXPECT_EQ(bytes(ElementwiseKernels::Eager, false), Bytes(elements * 2 * 5));
  EXPECT_EQ(bytes(ElementwiseKernels::Eager, true), Bytes(elements * 2 * 9));
  EXPECT_EQ(bytes(ElementwiseKernels::FusedNorms, false), Bytes(elements * 2 * 5));
  for (const auto kernels : {ElementwiseKernels::Liger, ElementwiseKernels::Compiled}) {
    EXPECT_EQ(bytes(kernels, false), Bytes(elements * 2 * 3));
    EXPECT_EQ(bytes(kernels, true), Bytes(elements * 2 * 5));
  }
}

// Two additions of 16 x 32 elements: eager 3 x each way; compiled they are part of the norms'
// kernels, 2 x forward and x backward, without launches.
TEST(OperatorCost, CompiledAdditionsArePartOfNorms) {
  const Model model = small_llama();
  const OperatorCost eager = sum_of(model, OperatorKind::ResidualAdd, kBatch);
  EXPECT_EQ(total(eager.forward), Bytes(2 * 16 * 32 * 2 * 3));
  const OperatorCost compiled =
      sum_of(model, OperatorKind::ResidualAdd, with_kernels(ElementwiseKernels::Compiled));
  EXPECT_EQ(total(compiled.forward), Bytes(2 * 16 * 32 * 2 * 2));
  EXPECT_EQ(total(compiled.backward_input), Bytes(2 * 16 * 32 * 2));
  EXPECT_EQ(launches(compiled.forward), 0);
}

// GPT-2's, unfused: scaled 4 B, masked 4 B and a byte of the mask, softmax 4 B; backward 6 B,
// masked 5 B, scaled 4 B. Megatron's one kernel 4 B, backward 6 B.
TEST(OperatorCost, MegatronsSoftmax) {
  const Model model = load_model("gpt2");
  BatchShape batch = with_kernels(ElementwiseKernels::Megatron);
  batch.flash_attention = false;
  const auto softmax = [&](bool backward) {
    Bytes sum;
    for (const Operator& op : model.operators) {
      if (op.kind != OperatorKind::Attention) continue;
      const OperatorCost cost = operator_cost(model, op, batch);
      for (const Kernel& kernel : backward ? cost.backward_input : cost.forward) {
        const bool of_scores = kernel.name == "softmax" || kernel.name == "scale_and_mask";
        if (of_scores) sum += kernel.bytes;
      }
      break;
    }
    return sum;
  };
  const std::int64_t scores = std::int64_t{16} * 8 * 12;  // heads of gpt2
  EXPECT_EQ(softmax(false), Bytes(scores * 4));
  EXPECT_EQ(softmax(true), Bytes(scores * 6));
  batch.kernels = ElementwiseKernels::Eager;
  EXPECT_EQ(softmax(false), Bytes(scores * (9 + 4)));
  EXPECT_EQ(softmax(true), Bytes(scores * (6 + 9)));
}

// Width 3072 of gpt2, T = 16, x = 2: 0.5 x 2, cube 2, times 2, plus x 3, times 2, tanh 2, plus 1 2,
// product 3 = 18 x; backward 3 + 3 + 3 + 2 + 2 + 2 + 2 + 3 + 2 + 2 x 3 = 28 x. Fused 2 x and 3 x.
TEST(OperatorCost, GeluNewIsEightKernels) {
  const Model model = load_model("gpt2");
  const OperatorCost eager = cost_of(model, "transformer.h.0.mlp.act");
  const Bytes value = Bytes(16 * 3072 * 2);
  EXPECT_EQ(total(eager.forward), value * 18);
  EXPECT_EQ(total(eager.backward_input), value * 28);
  EXPECT_EQ(launches(eager.forward), 8);
  EXPECT_EQ(launches(eager.backward_input), 11);
  EXPECT_EQ(eager.saved, value);
  const OperatorCost fused =
      cost_of(model, "transformer.h.0.mlp.act", with_kernels(ElementwiseKernels::Megatron));
  EXPECT_EQ(total(fused.forward), value * 2);
  EXPECT_EQ(total(fused.backward_input), value * 3);
  // Under autocast a power is fp32, and what comes of it.
  BatchShape autocast = kBatch;
  autocast.autocast = true;
  EXPECT_EQ(total(cost_of(model, "transformer.h.0.mlp.act", autocast).forward), value * 2 * 18);
}

// 4 heads of queries, 2 of keys and values, of 8: k and v, 2 x 2 x 8 values a token, become 2 x 4 x
// 8; both are moved each way, 2 (16 + 16 + 32 + 32) = 192 B a token.
TEST(OperatorCost, RepeatedKeysAreCopies) {
  const Model model = small_llama();
  BatchShape batch = kBatch;
  const Bytes plain = total(sum_of(model, OperatorKind::Attention, batch).forward);
  const Bytes back = total(sum_of(model, OperatorKind::Attention, batch).backward_input);
  batch.repeats_keys = true;
  const OperatorCost repeated = sum_of(model, OperatorKind::Attention, batch);
  EXPECT_EQ(total(repeated.forward) - plain, Bytes(16 * 192));
  EXPECT_EQ(total(repeated.backward_input) - back, Bytes(16 * 192));
}

// Autocast: LayerNorm reads and writes 4 B, each Linear behind one casts its input (6 B) and its
// bias; the residual stream is fp32 and what is added to it is not: 4 + 2 + 4 B. T = 16, h = 768.
TEST(OperatorCost, AutocastComputesNormsInFp32) {
  const Model model = load_model("gpt2");
  BatchShape batch = kBatch;
  batch.autocast = true;
  const std::int64_t elements = std::int64_t{16} * 768;
  EXPECT_EQ(total(cost_of(model, "transformer.ln_f", batch).forward),
            Bytes(elements * 8 + 16 * 2 * 4));
  const OperatorCost qkv = cost_of(model, "transformer.h.0.attn.c_attn", batch);
  EXPECT_EQ(qkv.forward[0].bytes, Bytes(elements * 6));
  EXPECT_EQ(qkv.forward[1].bytes, Bytes(3 * 768 * 6));
  EXPECT_EQ(qkv.saved, cost_of(model, "transformer.h.0.attn.c_attn").saved);
  const OperatorCost projection = cost_of(model, "transformer.h.0.attn.c_proj", batch);
  EXPECT_EQ(launches(projection.forward), 2);  // the bias and the product: its input is 16-bit
}

// V = 100, T = 16, bf16 logits cast to fp32 (6 B). Plain: log-softmax reads and writes fp32, 14 B;
// backward zeros, the gradient of log-softmax (read twice, written), the cast: 4 + 12 + 6. Fused:
// reads, 10 B; reads and writes, and the cast, 14 B. Chunked: two reads and a write of bf16, no
// backward. Older code shifts by a copy: 8 B each way.
TEST(OperatorCost, KernelsOfTheLoss) {
  const Model model = small_llama();
  BatchShape batch = kBatch;
  const auto bytes = [&](LossKind loss, bool backward) {
    batch.loss = loss;
    const OperatorCost cost = sum_of(model, OperatorKind::CrossEntropy, batch);
    return total(backward ? cost.backward_input : cost.forward).count() / (16 * 100);
  };
  EXPECT_EQ(bytes(LossKind::Plain, false), 14);
  EXPECT_EQ(bytes(LossKind::Plain, true), 22);
  EXPECT_EQ(bytes(LossKind::Fused, false), 10);
  EXPECT_EQ(bytes(LossKind::Fused, true), 14);
  EXPECT_EQ(bytes(LossKind::Chunked, false), 6);
  EXPECT_EQ(bytes(LossKind::Chunked, true), 0);
  batch.code = ModelCode::TransformersOld;
  EXPECT_EQ(bytes(LossKind::Plain, false), 22);
  EXPECT_EQ(bytes(LossKind::Plain, true), 30);
}

// gate_proj 32 x 48 on 16 tokens: input and weight are read twice and written as fp8, 5 B an
// element, then read as one byte; so is the gradient of the output. Compiled: 3 B for what a kernel
// has just made. The head stays as it is.
TEST(OperatorCost, Fp8CastsBothOperands) {
  const Model model = small_llama();
  BatchShape batch = kBatch;
  batch.units = MatrixUnits::Fp8;
  const OperatorCost cost = cost_of(model, "model.layers.0.mlp.gate_proj", batch);
  ASSERT_THAT(cost.forward, SizeIs(3));
  EXPECT_EQ(cost.forward[0].bytes, Bytes(16 * 32 * 5));
  EXPECT_EQ(cost.forward[1].bytes, Bytes(32 * 48 * 5));
  EXPECT_EQ(cost.forward[2].units, MatrixUnits::Fp8);
  EXPECT_EQ(cost.forward[2].bytes, Bytes(16 * 32 + 32 * 48 + 16 * 48 * 2));
  EXPECT_EQ(cost.backward_input.front().bytes, Bytes(16 * 48 * 5));
  batch.kernels = ElementwiseKernels::Compiled;
  EXPECT_EQ(cost_of(model, "model.layers.0.mlp.gate_proj", batch).forward[0].bytes,
            Bytes(16 * 32 * 3));
  EXPECT_EQ(cost_of(model, "lm_head", batch).forward.front().units, MatrixUnits::OfType);
}

TEST(OperatorCost, FlashAttentionBytes) {
  const Model model = small_llama();
  const Operator* attention = nullptr;
  for (const Operator& op : model.operators) {
    if (op.kind == OperatorKind::Attention) attention = &op;
  }
  ASSERT_NE(attention, nullptr);
  const OperatorCost cost = operator_cost(model, *attention, kBatch);
  // x (2h + 2 h_kv) e + 4 h = 2 (2*4 + 2*2) 8 + 4*4 = 208 B a token; backward x (4h + 4 h_kv) e
  EXPECT_EQ(total(cost.forward), Bytes(16 * 208));
  EXPECT_EQ(total(cost.backward_input), Bytes(16 * 2 * (4 * 4 + 4 * 2) * 8));
  EXPECT_EQ(cost.forward[0].kernel_class, KernelClass::Attention);
  EXPECT_EQ(cost.forward[0].m, 8);      // sequence
  EXPECT_EQ(cost.forward[0].n, 8);      // head size
  EXPECT_EQ(cost.forward[0].k, 2 * 4);  // micro batch x heads
  EXPECT_TRUE(cost.backward_input[0].backward);
}

TEST(OperatorCost, EmbeddingGradientIsAWholeTable) {
  const OperatorCost cost = cost_of(small_llama(), "model.embed_tokens");
  EXPECT_EQ(total(cost.forward), Bytes(2 * 2 * 16 * 32));
  // zeros x V d, rows x T d, fp32 atomics 8 T d
  EXPECT_EQ(total(cost.backward_weights), Bytes(2 * 100 * 32 + (2 + 8) * 16 * 32));
  EXPECT_THAT(cost.backward_input, IsEmpty());
}

TEST(OperatorCost, DropoutCostsNothingUnlessOn) {
  const Model model = load_model("gpt2");
  EXPECT_THAT(cost_of(model, "transformer.drop").forward, IsEmpty());
  BatchShape batch = kBatch;
  batch.dropout = true;
  const OperatorCost cost = cost_of(model, "transformer.drop", batch);
  EXPECT_EQ(total(cost.forward), Bytes(5 * 16 * 768));
  EXPECT_EQ(cost.saved, Bytes(16 * 768));
}

std::string batch_error(const BatchShape& batch) {
  const Model model = load_model("gpt2");
  try {
    static_cast<void>(operator_cost(model, model.operators.back(), batch));
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

TEST(OperatorCost, BadBatches) {
  EXPECT_EQ(batch_error({.micro_batch = 0, .sequence = 8}),
            "micro batch: found 0, expected 1 or more");
  EXPECT_EQ(batch_error({.micro_batch = 1, .sequence = -8}),
            "sequence length: found -8, expected 1 or more");
  EXPECT_THAT(batch_error({.micro_batch = std::int64_t{1} << 40, .sequence = 2}),
              HasSubstr("expected at most 1099511627776 tokens"));
  // 2^40 tokens x 2^31 logits x 10 B = 2^74 B
  const Model wide = parse_model(R"({"model_type": "gpt2", "n_embd": 2, "n_layer": 1, "n_head": 1,
      "vocab_size": 2147483648})",
                                 "wide.json");
  EXPECT_THROW(
      static_cast<void>(operator_cost(wide, wide.operators.back(),
                                      {.micro_batch = std::int64_t{1} << 30, .sequence = 1024})),
      ConfigError);
}

TEST(CheckpointBytes, NeedsAWidth) {
  const Model model = parse_model(R"({"format": "zerosim.module_listing", "version": 1,
      "modules": [{"name": "", "class": "Net"}]})",
                                  "net.json");
  EXPECT_THROW(static_cast<void>(checkpoint_bytes(model, kBatch)), ConfigError);
}

}  // namespace
}  // namespace zerosim
