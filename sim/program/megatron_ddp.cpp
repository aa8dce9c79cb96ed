// Megatron-LM's own DistributedDataParallel without a distributed optimizer or overlap: one
// reduction after the last backward of a step.
//
// As in v3.0: megatron/model/distributed.py (one contiguous buffer of gradients, into which each
// gradient is added; divided, then all-reduced whole), megatron/training.py (the loss is averaged
// over ranks each micro batch), megatron/optimizer/optimizer.py (Float16OptimizerWithFloat16Params:
// 16-bit weights and gradients beside fp32 copies). The buffer is fp32 for bf16 weights, which
// imply accumulate_allreduce_grads_in_fp32 (megatron/arguments.py), and of the weights' type
// otherwise.
//
// Not modelled: gradient_accumulation_fusion (the addition inside the weight gradient's product);
// the padding of the buffer.

#include <optional>
#include <string_view>
#include <vector>

#include "sim/program/adam.h"
#include "sim/program/frameworks.h"
#include "sim/program/model_loading.h"

namespace zerosim {

namespace {

constexpr std::string_view kRule = "Megatron";

class MegatronDdp : public FrameworkHooks {
 public:
  explicit MegatronDdp(const FrameworkContext& context)
      : context_(context),
        model_(context.model),
        strategy_(context.strategy),
        builder_(context.builder),
        has_masters_(strategy_.precision != Precision::Fp32),
        scales_loss_(strategy_.precision == Precision::Fp16),
        overflow_steps_(scales_loss_ ? strategy_.overflow_steps : 0),
        elements_(trainable_parameter_count(model_)),
        buffer_bytes_(Bytes(elements_) * dtype_bytes(strategy_.grad_accum_dtype)) {
    std::vector<std::int64_t> sizes;
    for (const Parameter& parameter : model_.parameters) {
      if (parameter.trainable) sizes.push_back(parameter.elements);
    }
    tensors_ = static_cast<int>(sizes.size());
    adam_.emplace(builder_, strategy_.optimizer, AdamTensors{sizes}, kRule);
  }

  void initialize() override {
    const int bytes = dtype_bytes(strategy_.ddp.parameter_dtype);
    allocate_parameters(context_, Bytes(parameter_count(model_)) * bytes, "parameters", "E2");
    builder_.allocate(buffer_bytes_, MemoryClass::Gradients, "gradient_buffer", kComputeStream,
                      kRule);
    if (has_masters_) allocate_master_weights(context_, elements_, kRule);
    if (context_.first_step > overflow_steps_) adam_->allocate_moments();
  }

  void begin_forward(const MicroBatch& micro) override {
    micro_ = micro;
    loss_averaged_ = false;
    if (micro.index == 0) {
      builder_.kernel(kComputeStream, memory_kernel("zero_gradient_buffer", buffer_bytes_),
                      HostWork::KernelLaunch, kRule);
    }
  }

  void pre_backward(ModuleId) override {
    if (loss_averaged_ || context_.world_size == 1) return;
    loss_averaged_ = true;
    builder_.all_reduce(kComputeStream, context_.world, 1, Dtype::F32, kRule);
  }

  void gradient_ready(ParameterId id, BufferId gradient) override {
    const std::int64_t elements = model_.parameters[id.index()].elements;
    const int moved =
        dtype_bytes(strategy_.ddp.parameter_dtype) + 2 * dtype_bytes(strategy_.grad_accum_dtype);
    builder_.host({HostWork::GradientHook}, kRule);
    builder_.kernel(kComputeStream, memory_kernel("accumulate", Bytes(elements) * moved),
                    HostWork::BackwardLaunch, kRule);
    builder_.free(gradient);
  }

  void end_backward() override {
    if (!micro_.boundary || context_.world_size == 1) return;
    builder_.kernel(kComputeStream, memory_kernel("average", buffer_bytes_ * 2),
                    HostWork::KernelLaunch, kRule);
    builder_.all_reduce(kComputeStream, context_.world, elements_, strategy_.grad_accum_dtype,
                        kRule);
  }

  void optimizer_step() override {
    BufferId copies = copy_gradients();
    if (scales_loss_) {
      builder_.host_wait(launch("unscale", 8), kRule);  // are there infinities?
    }
    if (strategy_.gradient_clipping > 0) {
      builder_.host_wait(launch("gradient_norm", 4), kRule);
      launch("clip", 8);
    }
    if (micro_.step >= overflow_steps_) {
      adam_->step();
      if (has_masters_) launch("copy_to_weights", 6);
    }
    builder_.free(copies);
  }

 private:
  /// Multi-tensor.
  OpId launch(std::string_view name, int bytes) {
    return builder_.kernel(kComputeStream, optimizer_kernel(name, Bytes(elements_) * bytes),
                           HostWork::OptimizerLaunch, kRule);
  }

  /// `main_param.grad = model_param.main_grad.float()`: tensor by tensor, nothing for fp32.
  BufferId copy_gradients() {
    BufferId copies;
    if (strategy_.grad_accum_dtype == Dtype::F32) return copies;
    copies = builder_.allocate(Bytes(elements_) * 4, MemoryClass::Gradients, "fp32_gradients",
                               kComputeStream, kRule);
    builder_.kernel(kComputeStream,
                    optimizer_kernel("copy_gradients", Bytes(elements_) * 6, tensors_),
                    HostWork::OptimizerLaunch, kRule);
    return copies;
  }

  FrameworkContext context_;
  const Model& model_;
  const Strategy& strategy_;
  RankProgramBuilder& builder_;
  bool has_masters_;
  bool scales_loss_;
  int overflow_steps_;
  std::int64_t elements_;  ///< that train
  Bytes buffer_bytes_;
  int tensors_ = 0;
  MicroBatch micro_;
  bool loss_averaged_ = false;  ///< in this micro batch
  std::optional<Adam> adam_;
};

}  // namespace

std::unique_ptr<FrameworkHooks> make_megatron_ddp(const FrameworkContext& context) {
  return std::make_unique<MegatronDdp>(context);
}

}  // namespace zerosim
