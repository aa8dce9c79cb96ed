// What must hold of every schedule of ZeRO stage 3: thousands of random configurations from a seed,
// read back from the Program alone (zero3_reading.h), without the coordinator that decided it.
//
// - What an operator computes with is whole before it starts, and was not released (C2 to C4).
// - Nothing is gathered that is there or on its way; a module's hook gathers only what it needs.
// - Live elements stay within the bounds of rules 23, 29, 30 and of E3 (check_live below).
// - Volumes are the closed form where there is one.
// - What a step allocates and does not keep is freed in it; steady steps are alike.
// - Building twice gives the same Program, and overlap_comm changes no message (rule 34).

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <tuple>

#include <gtest/gtest.h>

#include "sim/base/text.h"
#include "sim/model/leaf_modules.h"
#include "sim/model/operators.h"
#include "sim/model/routing.h"
#include "sim/model/trainable.h"
#include "sim/program/training_step.h"
#include "tests/sim/program/models.h"
#include "tests/sim/program/programs.h"
#include "tests/sim/program/random.h"
#include "tests/sim/program/zero3_reading.h"

namespace zerosim {
namespace {

constexpr int kSeeds = 8;
constexpr int kCasesPerSeed = 200;

using test::Random;

/// \name Models: real module structures; their sizes are drawn anew for each case
///@{
enum class Kind { Chain, Llama, TiedLlama, Gpt2, T5, Mixtral, Lora, HeadOnly, External };

const Model& structure(Kind kind) {
  static std::map<Kind, Model> known;
  const auto found = known.find(kind);
  if (found != known.end()) {
    return found->second;
  }
  const auto parsed = [](const std::string& text) { return parse_model(text, "config.json"); };
  const auto llama = [&](int layers, const char* tied) {
    return parsed(format(R"({{"model_type": "llama", "hidden_size": 16, "intermediate_size": 24,
        "vocab_size": 50, "num_hidden_layers": {}, "num_attention_heads": 2,
        "tie_word_embeddings": {}}})",
                         layers, tied));
  };
  TrainableOptions trained;
  Model model;
  switch (kind) {
    case Kind::Chain:
      break;  // differs in length: random_model
    case Kind::Llama:
      model = llama(2, "false");
      break;
    case Kind::TiedLlama:
      model = llama(1, "true");
      break;
    case Kind::Gpt2:
      model = parsed(R"({"model_type": "gpt2", "n_embd": 16, "n_head": 2, "n_layer": 2,
                         "vocab_size": 50, "n_positions": 64})");
      break;
    case Kind::T5:
      model = parsed(R"({"model_type": "t5", "d_model": 8, "num_layers": 1, "num_heads": 2,
                         "d_kv": 4, "d_ff": 16, "vocab_size": 50})");
      break;
    case Kind::Mixtral:
      model = parsed(R"({"model_type": "mixtral", "hidden_size": 16, "intermediate_size": 24,
                         "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2,
                         "vocab_size": 50, "num_local_experts": 4, "num_experts_per_tok": 2})");
      break;
    case Kind::Lora:
      trained.has_lora = true;
      trained.lora = {.rank = 2, .targets = {"q_proj", "v_proj"}, .dropout = false};
      model = with_trainable(llama(2, "false"), trained);
      break;
    case Kind::HeadOnly:
      trained.train_only = {"lm_head"};
      model = with_trainable(llama(2, "false"), trained);
      break;
    case Kind::External:
      model = parsed(R"({"format": "zerosim.module_listing", "version": 1, "vocab": 10, "modules": [
          {"name": "", "class": "Net", "uses": ["wte.weight"]},
          {"name": "wte", "class": "Embedding",
           "parameters": [{"name": "wte.weight", "shape": [10, 4]}]},
          {"name": "h.0", "class": "Block"},
          {"name": "h.0.fc", "class": "Linear",
           "parameters": [{"name": "h.0.fc.weight", "shape": [4, 4]},
                          {"name": "h.0.fc.bias", "shape": [4]}]},
          {"name": "h.0.ln", "class": "LayerNorm",
           "parameters": [{"name": "h.0.ln.weight", "shape": [4]}]}]})");
      break;
  }
  return known.emplace(kind, std::move(model)).first->second;
}

/// Padded sizes that differ: a buffer's size then tells its parameter.
void draw_sizes(Random& random, Model& model, int world_size) {
  std::set<std::int64_t> pieces;
  for (Parameter& parameter : model.parameters) {
    std::int64_t piece = 0;
    do {
      piece = random.chance(15) ? random.between(300, 2000) : random.between(1, 300);
    } while (!pieces.insert(piece).second);
    parameter.elements =
        piece * world_size - (random.chance(50) ? 0 : random.between(0, world_size - 1));
    parameter.shape = {parameter.elements};
    if (random.chance(50)) {
      parameter.shape.push_back(1);
    }
  }
}

Model random_model(Random& random, Kind kind, int world_size) {
  Model model = structure(kind);
  if (kind == Kind::Chain) {
    model =
        test::chain(std::vector<std::int64_t>(static_cast<std::size_t>(random.between(1, 12)), 1));
  }
  draw_sizes(random, model, world_size);
  const bool may_freeze = kind == Kind::Chain || kind == Kind::Llama || kind == Kind::Gpt2;
  if (may_freeze && random.chance(25)) {
    for (std::size_t i = 1; i < model.parameters.size(); ++i) {
      model.parameters[i].trainable = !random.chance(30);
    }
    if (kind != Kind::Chain) {  // which states its hooks itself
      trace_gradients(model);
    }
  }
  return model;
}
///@}

struct Case {
  Kind kind = Kind::Chain;
  Model model;
  Strategy strategy;
  BuildOptions options;
  bool may_drop_trace = false;  ///< experts change between micro batches
  std::string description;

  [[nodiscard]] const ZeroOptions& zero() const { return strategy.zero; }
  [[nodiscard]] int world() const { return options.world_size; }
  [[nodiscard]] bool newest() const { return strategy.version == "0.19"; }
  [[nodiscard]] bool has_frozen() const {
    return std::any_of(model.parameters.begin(), model.parameters.end(),
                       [](const Parameter& p) { return !p.trainable; });
  }
  [[nodiscard]] std::int64_t elements(ParameterId id) const {
    return model.parameters[id.index()].elements;
  }
  [[nodiscard]] std::int64_t padded(ParameterId id) const {
    return test::padded(elements(id), world());
  }
};

BatchShape batch_shape() {
  BatchShape batch;
  batch.sequence = 4;
  return batch;
}

void draw_limits(Random& random, ZeroOptions& zero) {
  constexpr std::int64_t kUnlimited = 1'000'000'000;
  zero.prefetch_bucket_size = random.chance(30)   ? 0
                              : random.chance(20) ? kUnlimited
                                                  : random.between(1, 3000);
  zero.max_live_parameters = random.chance(30) ? kUnlimited : random.between(0, 8000);
  zero.max_reuse_distance = random.chance(45)   ? 0
                            : random.chance(20) ? kUnlimited
                                                : random.between(1, 6000);
  zero.param_persistence_threshold = random.chance(45)   ? 0
                                     : random.chance(20) ? kUnlimited
                                                         : random.between(1, 1500);
  if (random.chance(20)) {
    zero.model_persistence_threshold = random.between(0, 3000);
  }
}

Strategy random_strategy(Random& random, int world_size) {
  Strategy strategy = test::deepspeed(3);
  ZeroOptions& zero = strategy.zero;
  draw_limits(random, zero);
  zero.overlap_comm = random.chance(60);
  zero.contiguous_gradients = random.chance(80);
  zero.reduce_scatter = random.chance(75);
  zero.reduce_bucket_size = random.chance(10) ? 500'000'000 : random.between(0, 5000);
  zero.sub_group_size = random.chance(50) ? 1'000'000'000 : random.between(1, 2000);
  zero.allgather_sequential = random.chance(10);
  zero.use_all_reduce_for_fetch_params = random.chance(10);
  if (world_size % 2 == 0 && random.chance(25)) {
    zero.hpz_partition_size = 2;
  }
  const Precision precisions[] = {Precision::Bf16, Precision::Fp16, Precision::Fp32};
  strategy.precision = precisions[random.between(0, 2)];
  strategy.communication_dtype = random.chance(30) ? Dtype::F32 : model_dtype(strategy.precision);
  strategy.grad_accum_dtype = random.chance(30) ? Dtype::F32 : model_dtype(strategy.precision);
  strategy.optimizer_groups =
      random.chance(50) ? OptimizerGroups::ByDimension : OptimizerGroups::One;
  strategy.checkpointing =
      random.chance(40) ? ActivationCheckpointing::Full : ActivationCheckpointing::None;
  strategy.version = random.chance(70) ? "0.19" : "0.14";
  strategy.throughput_timer = random.chance(50);
  strategy.grad_accum = random.between(1, 3);
  return strategy;
}

/// Each micro batch has its own tokens for each expert: some idle, none, or the same as before.
Routing changing_routing(Random& random, const Case& c) {
  Routing routing;
  routing.kind = Routing::Kind::Measured;
  for (const MoeBlock& block : c.model.moe_blocks) {
    const std::string& name = c.model.modules[block.module.index()].name;
    for (int step = 0; step < c.options.first_step + c.options.steps; ++step) {
      for (int micro = 0; micro < c.strategy.grad_accum; ++micro) {
        std::vector<std::int64_t> tokens = {1, 1, 1, 1};
        if (random.chance(50)) {
          tokens[static_cast<std::size_t>(random.between(0, 3))] = 0;
        }
        routing.measured.push_back({name, tokens, {}, MicroStep{step, micro}});
      }
    }
  }
  return routing;
}

Case random_case(Random& random) {
  Case c;
  c.options.world_size = static_cast<int>(random.between(2, 9));
  const Kind kinds[] = {Kind::Chain,     Kind::Chain,   Kind::Chain,   Kind::Llama,
                        Kind::TiedLlama, Kind::Gpt2,    Kind::T5,      Kind::Lora,
                        Kind::HeadOnly,  Kind::Mixtral, Kind::Mixtral, Kind::External};
  c.kind = kinds[random.between(0, static_cast<std::int64_t>(std::size(kinds)) - 1)];
  c.model = random_model(random, c.kind, c.world());
  c.strategy = random_strategy(random, c.world());
  c.options.first_step = random.chance(50) ? 0 : 2;
  c.options.steps = c.options.first_step == 0 ? 3 : 2;
  ZeroOptions& zero = c.strategy.zero;
  if (c.kind == Kind::Mixtral) {
    if (random.chance(40)) {
      zero.leaf_module_classes = {"MixtralSparseMoeBlock"};
    }
    if (random.chance(50)) {
      c.options.routing = changing_routing(random, c);
      c.may_drop_trace = zero.leaf_module_classes.empty();
    }
    if (c.may_drop_trace) {  // 0.14 stops then (rule 87)
      c.strategy.version = "0.19";
    }
  } else if (c.kind != Kind::External && c.kind != Kind::T5 && random.chance(10)) {
    zero.module_granularity_threshold = random.between(1, 400);
  }
  c.description = format(
      "{} {}, {} ranks, step {}, {} micro batches, prefetch {}, live {}, reuse {}, persist {} of "
      "{}, "
      "overlap {}, sequential {}, all-reduce {}, hpZ {}, checkpointing {}, granularity {}, leaf "
      "{}, "
      "changing {}, DeepSpeed {}",
      c.model.name, static_cast<int>(c.kind), c.world(), c.options.first_step,
      c.strategy.grad_accum, zero.prefetch_bucket_size, zero.max_live_parameters,
      zero.max_reuse_distance, zero.param_persistence_threshold, zero.model_persistence_threshold,
      zero.overlap_comm, zero.allgather_sequential, zero.use_all_reduce_for_fetch_params,
      zero.hpz_partition_size, static_cast<int>(c.strategy.checkpointing),
      zero.module_granularity_threshold, zero.leaf_module_classes.size(), c.may_drop_trace,
      c.strategy.version);
  return c;
}

/// Step and micro batch.
using Place = std::pair<int, int>;

/// The models that micro batches run: experts with their tokens, leaves folded.
class RunModels {
 public:
  explicit RunModels(const Case& c) : case_(c), leaves_(leaf_modules(c.zero(), c.model)) {}

  const Model& of(const Place& place) {
    const Place key = varies(case_.options.routing) ? place : Place();
    const auto found = models_.find(key);
    if (found != models_.end()) {
      return found->second;
    }
    Model model = case_.model;
    if (!model.moe_blocks.empty()) {
      model = route_tokens(std::move(model), case_.options.routing, batch_shape().tokens(),
                           {place.first, place.second});
    }
    if (!leaves_.empty()) {
      model = with_leaf_modules(std::move(model), leaves_);
    }
    return models_.emplace(key, std::move(model)).first->second;
  }

 private:
  const Case& case_;
  std::vector<ModuleId> leaves_;
  std::map<Place, Model> models_;
};

/// Rule 38, anew.
std::set<ParameterId> persistent_of(const Case& c) {
  std::set<ParameterId> persistent;
  std::int64_t total = 0;
  for (std::size_t i = 0; i < c.model.parameters.size(); ++i) {
    const std::int64_t elements = c.model.parameters[i].elements;
    if (elements <= c.zero().param_persistence_threshold &&
        total + elements <= c.zero().model_persistence_threshold) {
      persistent.insert(ParameterId(i));
      total += elements;
    }
  }
  return persistent;
}

/// Follows one Program: what is gathered at each moment, and what is computed with it.
class Follower {
 public:
  Follower(const Case& c, const Program& program, RunModels& models)
      : case_(c),
        rank_(program.ranks[0]),
        reading_(program, c.model, dtype_bytes(model_dtype(c.strategy.precision))),
        order_(rank_),
        live_(c.model.parameters.size()),
        on_its_way_(c.model.parameters.size()),
        persistent_(persistent_of(c)),
        models_(models) {
    for (const Parameter& parameter : c.model.parameters) {
      largest_ = std::max(largest_, parameter.elements);
    }
  }

  void run() {
    for (std::size_t i = 0; i < rank_.ops.size() && !testing::Test::HasFailure(); ++i) {
      const Op& op = rank_.ops[i];
      if (phase_ == Phase::Backward && op.phase != Phase::Backward) {
        end_backward();
      }
      if (op.phase == Phase::Forward && Place(op.step, op.micro_step) != micro_) {
        begin_micro_batch(op);
      }
      phase_ = op.phase;
      follow(OpId(i), op);
    }
    EXPECT_EQ(next_kernel_, kernels_.size());
  }

 private:
  struct Live {
    bool whole = false;
    OpId filled_by;
  };

  /// A use of the trace: what the module of a fetching hook needs.
  struct Use {
    ModuleId module;
    bool backward = false;
    bool recompute = false;
    const std::vector<ParameterId>* parameters = nullptr;
  };

  void begin_micro_batch(const Op& op) {
    micro_ = {op.step, op.micro_step};
    EXPECT_EQ(next_kernel_, kernels_.size());
    model_ = &models_.of(micro_);
    events_.clear();
    uses_.clear();
    kernels_.clear();
    next_event_ = next_kernel_ = position_ = 0;
    for (const TrainingEvent& event : training_events(*model_, case_.strategy.checkpointing)) {
      if (event.operation >= 0) {
        expect_kernels(event);
        continue;
      }
      if (event.kind == TrainingEvent::Kind::LeaveBackward) {
        continue;  // no hook of DeepSpeed
      }
      events_.push_back(event);
      if (fetches(event)) {
        uses_.push_back({event.module, event.kind == TrainingEvent::Kind::PreBackward,
                         event.recompute, &model_->modules[event.module.index()].parameters});
      }
    }
    active_.clear();
    held_.clear();
    // Rule 22: nothing is prefetched while the trace is recorded. Where experts change, it may be
    // any micro batch.
    recording_ = case_.options.first_step == 0 && op.step == 0 && op.micro_step == 0;
    if (case_.newest()) {
      available_ = 0;  // rule 30
    }
  }

  // Rule 30: 0.14 begins to count again here, before anything that is left is released.
  void end_backward() {
    EXPECT_EQ(next_event_, events_.size());
    if (!case_.newest()) {
      available_ = 0;
      counts_ = true;
    }
  }

  static bool fetches(const TrainingEvent& event) {
    return event.kind == TrainingEvent::Kind::PreForward ||
           event.kind == TrainingEvent::Kind::PreBackward;
  }

  void expect_kernels(const TrainingEvent& event) {
    const auto index = static_cast<std::size_t>(event.operation);
    const OperatorCost cost = operator_cost(*model_, model_->operators[index], batch_shape());
    const std::size_t count = event.kind == TrainingEvent::Kind::Forward
                                  ? cost.forward.size()
                                  : cost.backward_input.size() + cost.backward_weights.size();
    kernels_.insert(kernels_.end(), count, index);
  }

  void follow(OpId id, const Op& op) {
    switch (op.kind) {
      case OpKind::Host:
        if (op.host_work == HostWork::DeepSpeedHook) {
          hook(op);
        }
        break;
      case OpKind::Allocate:
        allocate(id, op);
        break;
      case OpKind::Free:
        free(op);
        break;
      case OpKind::Collective:
        collective(id);
        break;
      case OpKind::Kernel:
        if (op.rule == "F5") {
          compute(id);
        }
        break;
      default:
        break;
    }
  }

  void hook(const Op& op) {
    check_prefetch();
    ASSERT_LT(next_event_, events_.size());
    const TrainingEvent& event = events_[next_event_++];
    ASSERT_EQ(event.module, op.module);
    module_ = event.module;
    if (fetches(event)) {
      active_.insert(event.module);
      if (event.recompute) {
        hold_frozen(event.module);
      }
      in_fetch_ = true;
      ++position_;
    } else {
      active_.erase(event.module);
      in_fetch_ = false;
    }
  }

  // Rule 80: until some module's backward ends; here, to the end of the backward.
  void hold_frozen(ModuleId module) {
    if (case_.newest()) {
      for (const ParameterId id : model_->modules[module.index()].parameters) {
        if (!case_.model.parameters[id.index()].trainable) {
          held_.insert(id);
        }
      }
    }
  }

  void allocate(OpId id, const Op& op) {
    const ParameterId parameter = reading_.parameter(op);
    if (!parameter.valid()) {
      return;
    }
    Live& live = live_[parameter.index()];
    EXPECT_FALSE(live.whole) << "allocated twice: " << parameter.value();
    live = {true, reading_.filled_by(id)};
    on_its_way_[parameter.index()] = on_its_way_[parameter.index()] || op.phase == Phase::Init;
  }

  void free(const Op& op) {
    const ParameterId parameter = reading_.parameter(op);
    if (!parameter.valid()) {
      return;
    }
    EXPECT_TRUE(live_[parameter.index()].whole);
    live_[parameter.index()] = {};
    on_its_way_[parameter.index()] = false;
    available_ -= case_.elements(parameter);
  }

  void collective(OpId id) {
    const test::ReadGather* gather = reading_.gather(id);
    if (gather == nullptr) {
      return;
    }
    std::int64_t elements = 0;
    for (const ParameterId member : gather->members) {
      EXPECT_FALSE(on_its_way_[member.index()]) << "gathered twice: " << member.value();
      on_its_way_[member.index()] = true;
      elements += case_.padded(member);
    }
    EXPECT_EQ(elements, gather->elements);
    const std::string_view rule = rank_.ops[id.index()].rule;
    if (rank_.ops[id.index()].phase == Phase::Step || rule == "C2.6") {
      return;  // not counted (C8.5, rule 84)
    }
    EXPECT_TRUE(in_fetch_);
    if (gather->waited_in_its_hook) {
      fetched(*gather);
    } else {
      prefetched_.insert(prefetched_.end(), gather->members.begin(), gather->members.end());
    }
  }

  // Rule 21: the module's own parameters and no others. Rule 29: whatever is live.
  void fetched(const test::ReadGather& gather) {
    const std::vector<ParameterId>& own = model_->modules[module_.index()].parameters;
    keep_persistent(gather.members);
    for (const ParameterId member : gather.members) {
      EXPECT_TRUE(case_.kind == Kind::External ||
                  std::find(own.begin(), own.end(), member) != own.end());
      available_ += case_.elements(member);
    }
    check_live();
  }

  // After a recording they are gathered like all others, counted, and stay (C4.2, C4.6).
  void keep_persistent(const std::vector<ParameterId>& gathered) {
    for (const ParameterId id : gathered) {
      if (!recording_ && persistent_.contains(id)) {
        held_.insert(id);
      }
    }
  }

  /// Rules 23 and 30: parameters are added while the sum is below the bucket and below what
  /// max_live leaves, tested before each addition: without the last one, which is no larger than
  /// the largest, both are kept strictly.
  void check_prefetch() {
    if (prefetched_.empty()) {
      return;
    }
    EXPECT_FALSE(recording_);
    std::int64_t sum = 0;
    std::int64_t largest = 0;
    for (const ParameterId id : prefetched_) {
      sum += case_.elements(id);
      largest = std::max(largest, case_.elements(id));
    }
    const ZeroOptions& zero = case_.zero();
    // Rule 35: one parameter a hook if they are gathered one by one.
    EXPECT_LT(sum - largest, zero.allgather_sequential ? 1 : zero.prefetch_bucket_size);
    if (counted()) {
      EXPECT_LT(available_, zero.max_live_parameters);
      EXPECT_LT(available_ + sum - largest, zero.max_live_parameters);
    }
    keep_persistent(prefetched_);
    prefetched_.clear();
    available_ += sum;
    check_live();
  }

  // A steady Program of 0.14 begins with a count from steps that are not in it.
  [[nodiscard]] bool counted() const {
    return case_.newest() || counts_ || case_.options.first_step == 0;
  }

  // Rule 32b: what is released stays as the first complete micro batch decided. It is like all
  // others in 0.19, unless it meets persistent parameters that the recording has released.
  [[nodiscard]] bool alike() const {
    return case_.newest() && (case_.strategy.grad_accum == 1 || persistent_.empty());
  }

  /// Live elements, as counted (rule 30). A prefetch ends at most at max_live - 1 + one parameter.
  /// A fetch adds whatever its module lacks (rule 29), but then the queue had not got beyond that
  /// module, so nothing is there for the sake of a later prefetch; what is there is
  ///   - what modules that are active own, this one included,
  ///   - what is used again within the reuse distance: at its release the parameters between were
  ///     fewer than max_reuse_distance (rule 27), hence also those from here,
  ///   - frozen weights that a recomputation holds (rule 80), persistent ones that were gathered.
  /// So live <= max(max_live - 1 + largest parameter, elements of these sets together).
  void check_live() {
    const ZeroOptions& zero = case_.zero();
    if (case_.kind == Kind::External || case_.may_drop_trace || !alike()) {
      return;  // what is used by others changes the trace, what is dropped is not in it
    }
    const bool may_prefetch =
        !recording_ && (zero.prefetch_bucket_size > 0 || zero.allgather_sequential);
    if (may_prefetch && available_ < zero.max_live_parameters + largest_) {
      return;
    }
    std::set<ParameterId> forced = held_;
    for (const ModuleId module : active_) {
      const auto& own = model_->modules[module.index()].parameters;
      forced.insert(own.begin(), own.end());
    }
    std::int64_t distance = 0;
    for (std::size_t i = position_ - 1; i < uses_.size() && !recording_; ++i) {
      if (distance >= zero.max_reuse_distance) {
        break;
      }
      for (const ParameterId id : *uses_[i].parameters) {
        forced.insert(id);
        distance += case_.elements(id);
      }
    }
    std::int64_t elements = 0;
    for (const ParameterId id : forced) {
      elements += case_.elements(id);
    }
    EXPECT_LE(available_, elements);
  }

  // What the kernel's operator computes with is whole before it starts.
  void compute(OpId id) {
    check_prefetch();
    ASSERT_LT(next_kernel_, kernels_.size());
    const Operator& op = model_->operators[kernels_[next_kernel_++]];
    ASSERT_EQ(op.module, rank_.ops[id.index()].module);
    for (const ParameterId parameter : op.parameters) {
      const Live& live = live_[parameter.index()];
      EXPECT_TRUE(live.whole) << "used while released: " << parameter.value();
      EXPECT_TRUE(!live.filled_by.valid() || order_.ordered(live.filled_by, id))
          << "used before its gather has ended: " << parameter.value();
    }
  }

  const Case& case_;
  const RankProgram& rank_;
  test::Zero3Reading reading_;
  test::DeviceOrder order_;
  std::vector<Live> live_;        ///< by parameter: it has its buffer
  std::vector<bool> on_its_way_;  ///< by parameter: gathered and not freed
  std::set<ParameterId> persistent_;
  std::int64_t largest_ = 0;  ///< parameter
  Place micro_{-1, -1};
  Phase phase_ = Phase::Init;
  RunModels& models_;
  const Model* model_ = nullptr;       ///< of this micro batch
  std::vector<TrainingEvent> events_;  ///< of it, those with hooks
  std::vector<Use> uses_;              ///< those that fetch
  std::vector<std::size_t> kernels_;   ///< operators of its kernels, in order
  std::size_t next_event_ = 0;
  std::size_t next_kernel_ = 0;
  std::size_t position_ = 0;             ///< fetching hooks of this micro batch so far
  std::set<ModuleId> active_;            ///< between the hooks before and after
  std::set<ParameterId> held_;           ///< by no module: see check_live
  std::vector<ParameterId> prefetched_;  ///< in this hook
  ModuleId module_;                      ///< of this hook
  bool in_fetch_ = false;
  bool recording_ = false;
  bool counts_ = false;
  std::int64_t available_ = 0;
};

/// \name Volumes
///@{
/// What one micro batch sends, in elements.
struct Volume {
  std::int64_t gathered_by_all = 0;
  std::int64_t gathered_in_groups = 0;  ///< of hpZ
  std::int64_t scattered = 0;           ///< inputs of reduce-scatters
  std::int64_t reduced = 0;             ///< all-reduces of buckets
};

struct Traffic {
  std::map<Place, Volume> volumes;
  std::map<int, std::vector<ParameterId>> after_step;  ///< gathered then, by step
};

Traffic traffic_of(const Case& c, const Program& program) {
  const RankProgram& rank = program.ranks[0];
  const test::Zero3Reading reading(program, c.model,
                                   dtype_bytes(model_dtype(c.strategy.precision)));
  Traffic traffic;
  for (std::size_t i = 0; i < rank.ops.size(); ++i) {
    const Op& op = rank.ops[i];
    if (op.kind != OpKind::Collective) {
      continue;
    }
    const Collective& call = rank.collectives[static_cast<std::size_t>(op.payload)];
    Volume& volume = traffic.volumes[{op.step, op.micro_step}];
    if (const test::ReadGather* gather = reading.gather(OpId(i))) {
      if (op.phase == Phase::Step) {
        EXPECT_EQ(gather->members.size(), 1U);
        traffic.after_step[op.step].push_back(gather->members.at(0));
      } else if (program.groups[call.group.index()].name == "hpZ") {
        volume.gathered_in_groups += gather->elements;
      } else {
        volume.gathered_by_all += gather->elements;
      }
    } else if (call.kind == CollectiveKind::ReduceScatter) {
      EXPECT_EQ(call.input_elements, call.output_elements * c.world());
      volume.scattered += call.input_elements;
    } else if (call.kind == CollectiveKind::AllReduce && op.phase == Phase::Backward) {
      volume.reduced += call.input_elements;
    }
  }
  return traffic;
}

/// Each gradient that arrives is reduced once in each micro batch (rule 43): padded by a
/// reduce-scatter (rule 41); as it is by an all-reduce, where it is asked for and fits (rule 44).
void check_reductions(const Case& c, const Model& model, const Volume& volume) {
  const ZeroOptions& zero = c.zero();
  std::int64_t scattered = 0;
  std::int64_t reduced = 0;
  for (const ExecutionStep& step : model.forward) {
    if (step.kind != ExecutionStep::Kind::Compute) {
      continue;
    }
    for (const ParameterId id :
         model.operators[static_cast<std::size_t>(step.operation)].gradients) {
      if (!c.model.parameters[id.index()].trainable) {
        continue;
      }
      const bool fits = zero.contiguous_gradients && c.elements(id) <= zero.reduce_bucket_size;
      if (!zero.reduce_scatter && fits) {
        reduced += c.elements(id);
      } else {
        scattered += c.padded(id);
      }
    }
  }
  EXPECT_EQ(volume.scattered, scattered);
  EXPECT_EQ(volume.reduced, reduced);
}

/// Padded elements that the modules of all fetching hooks own: what is gathered if nothing is kept.
std::int64_t fetched_by_every_hook(const Case& c, const Model& model) {
  std::int64_t sum = 0;
  for (const ModuleId module : fetch_order(training_events(model, c.strategy.checkpointing))) {
    for (const ParameterId id : model.modules[module.index()].parameters) {
      sum += c.padded(id);
    }
  }
  return sum;
}

/// The same of a Llama, all of it trained: each parameter in forward and in backward, those of a
/// checkpointed block once more (C5.7: "prefetch 0, reuse 0" has 2 Psi, 3 Psi with recomputation).
std::int64_t fetched_by_llama(const Case& c) {
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < c.model.parameters.size(); ++i) {
    const bool in_block = c.model.modules[c.model.parameters[i].owner.index()].block >= 0;
    const bool again = c.strategy.checkpointing == ActivationCheckpointing::Full && in_block;
    sum += c.padded(ParameterId(i)) * (again ? 3 : 2);
  }
  return sum;
}

void check_gathers(const Case& c, const Place& place, const Model& model, const Volume& volume) {
  const ZeroOptions& zero = c.zero();
  const auto [step, micro] = place;
  const std::int64_t gathered = volume.gathered_by_all + volume.gathered_in_groups;
  const std::set<ParameterId> persistent = persistent_of(c);
  const bool recording = step == 0 && micro == 0;
  if (!recording && step > 0 && persistent.size() == c.model.parameters.size() &&
      !c.may_drop_trace) {
    EXPECT_EQ(gathered, 0);  // rule 38
  }
  const bool keeps_nothing = zero.prefetch_bucket_size == 0 && !zero.allgather_sequential &&
                             zero.max_reuse_distance == 0 && persistent.empty();
  // Rules 31 (0.14 keeps embeddings for the next micro batch; T5 comes to its embedding twice in a
  // backward, which has no hook that releases it), 80 (frozen weights stay), 84.
  const bool holds = c.has_frozen() && c.strategy.checkpointing == ActivationCheckpointing::Full;
  const bool plain = c.newest() && !holds && c.kind != Kind::External && c.kind != Kind::T5;
  if (plain && (recording || keeps_nothing)) {  // rules 22, 28
    EXPECT_EQ(gathered, fetched_by_every_hook(c, model));
    if (c.kind == Kind::Llama && !c.has_frozen() && zero.module_granularity_threshold == 0) {
      EXPECT_EQ(gathered, fetched_by_llama(c));
    }
  }
}

/// Rules 54 and 81: of all ranks each parameter that the step updates is gathered once, first; the
/// persistent ones after the step only.
void check_hpz(const Case& c, const Traffic& traffic, RunModels& models) {
  const std::set<ParameterId> persistent = persistent_of(c);
  std::map<int, std::set<ParameterId>> used;
  std::map<int, std::int64_t> sent;
  for (const auto& [place, volume] : traffic.volumes) {
    const int step = place.first;
    const Model& model = models.of(place);
    for (const ModuleId module : fetch_order(training_events(model, c.strategy.checkpointing))) {
      const auto& own = model.modules[module.index()].parameters;
      used[step].insert(own.begin(), own.end());
    }
    sent[step] += volume.gathered_by_all;
  }
  for (const auto& [step, elements] : sent) {
    std::int64_t expected = 0;
    for (const ParameterId id : used[step]) {
      const bool updated = c.model.parameters[id.index()].trainable && step > 0;
      expected += updated && !persistent.contains(id) ? c.padded(id) : 0;
    }
    EXPECT_EQ(elements, expected) << "step " << step;
  }
}

void check_volumes(const Case& c, const Program& program, RunModels& models) {
  const Traffic traffic = traffic_of(c, program);
  for (const auto& [place, volume] : traffic.volumes) {
    const Model& model = models.of(place);
    check_reductions(c, model, volume);
    check_gathers(c, place, model, volume);
  }
  const std::set<ParameterId> persistent = persistent_of(c);
  for (int step = program.first_step; step < program.first_step + program.steps; ++step) {
    const auto found = traffic.after_step.find(step);
    const std::vector<ParameterId> gathered =
        found == traffic.after_step.end() ? std::vector<ParameterId>() : found->second;
    EXPECT_EQ(gathered, std::vector<ParameterId>(persistent.begin(), persistent.end()));  // rule 39
  }
  if (c.zero().hpz_partition_size > 1 && c.kind != Kind::External && !c.may_drop_trace) {
    check_hpz(c, traffic, models);
  }
}
///@}

/// What lives at the end of each step, by owner and size.
using Lives = std::multiset<std::pair<std::string_view, std::int64_t>>;

void check_memory(const Case& c, const Program& program) {
  const RankProgram& rank = program.ranks[0];
  int step = program.first_step;
  Lives live;
  Lives before;  // at the end of the last step but one
  for (const Op& op : rank.ops) {
    if (op.step != step) {
      before = live;
      step = op.step;
    }
    if (op.kind == OpKind::Allocate || op.kind == OpKind::Free) {
      const Buffer& buffer = rank.buffers[static_cast<std::size_t>(op.payload)];
      const std::pair<std::string_view, std::int64_t> piece{buffer.owner, buffer.bytes.count()};
      if (op.kind == OpKind::Allocate) {
        live.insert(piece);
      } else {
        ASSERT_TRUE(live.contains(piece));
        live.erase(live.find(piece));
      }
    }
  }
  EXPECT_EQ(live, before);
  const std::set<std::string_view> kept = {"parameter_partitions",
                                           "gradient_partitions",
                                           "ipg_bucket",
                                           "master_weights",
                                           "exp_avg",
                                           "exp_avg_sq",
                                           "gathered_parameter",
                                           "secondary_partition"};
  std::size_t whole = 0;
  for (const auto& [owner, bytes] : live) {
    EXPECT_TRUE(kept.contains(owner)) << owner;
    whole += owner == "gathered_parameter" ? 1 : 0;
  }
  EXPECT_EQ(whole, persistent_of(c).size());
}

/// The messages of the steps from `step` on, in the order of issue.
std::vector<std::string> messages(const Program& program, int step) {
  const RankProgram& rank = program.ranks[0];
  std::vector<std::string> lines;
  for (const Op& op : rank.ops) {
    if (op.kind == OpKind::Collective && op.step >= step) {
      const Collective& call = rank.collectives[static_cast<std::size_t>(op.payload)];
      lines.push_back(format("{}.{} {} {} {} {} {} {}", op.step, op.micro_step, to_string(op.phase),
                             to_string(call.kind), call.input_elements, call.output_elements,
                             to_string(call.dtype), call.group.value()));
    }
  }
  return lines;
}

/// Everything of a Program that a run depends on.
std::vector<std::string> fingerprint(const Program& program) {
  const RankProgram& rank = program.ranks[0];
  std::vector<std::string> lines = messages(program, 0);
  for (const Op& op : rank.ops) {
    std::string line = format("{} {} {} {} {} {}", to_string(op.kind), to_string(op.host_work),
                              op.stream.value(), op.payload, op.module.value(), op.rule);
    for (const OpId dependency : rank.dependencies_of(op)) {
      line += format(" {}", dependency.value());
    }
    lines.push_back(line);
  }
  for (const Buffer& buffer : rank.buffers) {
    lines.push_back(format("{} {} {}", buffer.owner, buffer.bytes.count(), buffer.stream.value()));
  }
  for (const Kernel& kernel : rank.kernels) {
    lines.push_back(format("{} {} {}", kernel.name, kernel.bytes.count(), kernel.launches));
  }
  return lines;
}

void check_again(const Case& c, const Program& program) {
  EXPECT_EQ(fingerprint(build_program(c.model, c.strategy, batch_shape(), c.options)),
            fingerprint(program));
  Case other = c;
  other.strategy.zero.overlap_comm = !c.zero().overlap_comm;
  EXPECT_EQ(messages(build_program(c.model, other.strategy, batch_shape(), c.options), 0),
            messages(program, 0));
  // Steps from the second on are alike, and a Program of them need not begin with the recording.
  if (c.options.first_step == 0 && !c.may_drop_trace) {
    BuildOptions steady = c.options;
    steady.first_step = 2;
    steady.steps = 1;
    EXPECT_EQ(messages(build_program(c.model, c.strategy, batch_shape(), steady), 2),
              messages(program, 2));
  }
}

class RandomZero3 : public testing::TestWithParam<int> {};

TEST_P(RandomZero3, KeepsItsPromises) {
  Random random(static_cast<std::uint64_t>(GetParam()));
  for (int i = 0; i < kCasesPerSeed && !HasFailure(); ++i) {
    const Case c = random_case(random);
    SCOPED_TRACE(format("seed {}, case {}: {}", GetParam(), i, c.description));
    const Program program = build_program(c.model, c.strategy, batch_shape(), c.options);
    RunModels models(c);
    Follower(c, program, models).run();
    check_volumes(c, program, models);
    check_memory(c, program);
    if (i % 10 == 0) {
      check_again(c, program);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomZero3, testing::Range(0, kSeeds));

}  // namespace
}  // namespace zerosim
