#include "sim/analysis/explain_oom.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "sim/analysis/memory_report.h"
#include "sim/analysis/size_formula.h"
#include "sim/base/text.h"
#include "sim/memory/caching_allocator.h"

namespace zerosim {

namespace {

std::string size_text(Bytes bytes) {
  return torch_size_text(bytes);
}

// ---- the message -------------------------------------------------------------------------------

/// Whether what PyTorch held unused would have served the request.
bool is_fragmented(const OomFigures& figures) {
  const std::optional<Bytes> unused = figures.unallocated();
  return unused && figures.request && *unused >= figures.request->bytes;
}

/// What is on the device and not PyTorch's.
std::optional<Bytes> outside_pytorch(const OomFigures& figures) {
  if (!figures.total || !figures.free || !figures.reserved) return std::nullopt;
  return std::max(figures.total->bytes - figures.free->bytes - figures.reserved->bytes, Bytes(0));
}

/// Of it what other processes hold, as far as the message tells.
std::optional<Bytes> other_processes(const OomFigures& figures) {
  if (figures.others) return figures.others->bytes;
  if (!figures.total || !figures.free || !figures.process) return std::nullopt;
  const Bytes outside = figures.total->bytes - figures.free->bytes - figures.process->bytes;
  const Bytes rounding =
      figures.total->tolerance + figures.free->tolerance + figures.process->tolerance;
  return outside > rounding + rounding ? outside : Bytes(0);
}

std::string fragmentation_sentence(const OomFigures& figures) {
  const std::string unused = size_text(*figures.unallocated());
  const std::string request = size_text(figures.request->bytes);
  if (is_fragmented(figures)) {
    return format(
        "Fragmentation: PyTorch held {} that it did not use, more than the {} it asked for, but in "
        "no piece that large (E7).",
        unused, request);
  }
  return format(
      "Not fragmentation: PyTorch held only {} that it did not use, less than the {} it "
      "asked for.",
      unused, request);
}

/// What lies outside of PyTorch's allocator. \param expected  of the simulation, if there is one.
std::vector<std::string> outside_sentences(const OomFigures& figures,
                                           std::optional<Bytes> expected) {
  std::vector<std::string> sentences;
  const std::optional<Bytes> others = other_processes(figures);
  if (others && *others > Bytes(0)) {
    sentences.push_back(format("Other processes hold {} of this GPU.", size_text(*others)));
  }
  const std::optional<Bytes> outside = outside_pytorch(figures);
  if (!outside) return sentences;
  const Bytes own = std::max(*outside - others.value_or(Bytes(0)), Bytes(0));
  // A context with its kernels and NCCL's buffers of a few communicators (E1).
  constexpr Bytes kUsual = 3_GiB;
  if (!others && own > std::max(expected.value_or(Bytes(0)), kUsual)) {
    sentences.push_back(
        format("{} are neither free nor PyTorch's, more than the CUDA context and NCCL take: look "
               "for other processes on this GPU (nvidia-smi).",
               size_text(own)));
  } else {
    const std::string simulated =
        expected ? format(" ({} in the simulation)", size_text(*expected)) : "";
    sentences.push_back(format("{} are outside PyTorch's allocator: CUDA context, kernels, NCCL{}.",
                               size_text(own), simulated));
  }
  return sentences;
}

void add_message_evidence(const OomFigures& figures, std::optional<Bytes> context,
                          std::vector<std::string>& evidence) {
  if (figures.unallocated() && figures.request) {
    evidence.push_back(fragmentation_sentence(figures));
  }
  for (std::string& sentence : outside_sentences(figures, context)) {
    evidence.push_back(std::move(sentence));
  }
}

/// What fragmentation is answered with, by the message's own figures.
WayOut defragmentation(const OomFigures& figures) {
  WayOut way;
  way.code = "expandable_segments";
  way.change = "expandable segments";
  way.setting = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True";
  way.note = format("of the {} that PyTorch held unused {} would have been enough",
                    size_text(*figures.unallocated()), size_text(figures.request->bytes));
  return way;
}

// ---- the request -------------------------------------------------------------------------------

struct OwnerWords {
  std::string_view owner;
  std::string_view words;
};
/// Buffers whose names alone say too little.
constexpr std::array<OwnerWords, 15> kOwners = {{
    {"adam_root",
     "the root of Adam's second moment, a temporary of an optimizer that is not fused"},
    {"adam_quotient",
     "Adam's quotient, the second temporary of an optimizer that is not fused, beside the root"},
    {"exp_avg", "Adam's first moment, which the first step creates"},
    {"exp_avg_sq", "Adam's second moment, which the first step creates"},
    {"master_weights", "the fp32 master weights"},
    {"ipg_bucket", "the gradient bucket"},
    {"fp32_gradients", "the fp32 copy of the gradients"},
    {"logits", "the logits"},
    {"logits_copies", "copies of the logits"},
    {"whole_model", "the model, whole before it is cut"},
    {"whole_parameter", "a parameter, whole before it is cut"},
    {"logits_gradient", "the gradient of the logits"},
    {"unsharded_flat", "a unit's parameters, gathered"},
    {"saved_activation", "what a module saves for its backward"},
    {"checkpoint", "the checkpoint of a block: its input"},
}};

std::string owner_words(std::string_view owner) {
  const auto* found = std::find_if(kOwners.begin(), kOwners.end(),
                                   [&](const OwnerWords& own) { return own.owner == owner; });
  if (found != kOwners.end()) return std::string(found->words);
  std::string words(owner);
  std::replace(words.begin(), words.end(), '_', ' ');
  return words;
}

std::string_view phase_words(Phase phase) {
  switch (phase) {
    case Phase::Init:
      return "during initialisation";
    case Phase::Forward:
      return "in the forward";
    case Phase::Backward:
      return "in the backward";
    case Phase::Step:
      break;
  }
  return "in the optimizer step";
}

std::string ordinal_text(int earlier, Bytes bytes) {
  constexpr int kFew = 3;
  if (earlier == 0 || earlier > kFew) return "";
  return format(" {} of this size {} live already.",
                earlier == 1 ? "One buffer" : format("{} buffers", earlier),
                earlier == 1 ? "is" : "are") +
         format(" Together they take {}.", size_text(bytes * (earlier + 1)));
}

/// \param shown  the size as the message has it, or of the simulated request.
std::string request_sentence(const std::string& shown, const RequestMoment& moment,
                             const std::string& formula, OomMatch match) {
  std::string text =
      match == OomMatch::Near ? format("{} is nearly {}", shown, size_text(moment.bytes)) : shown;
  if (!formula.empty()) text += " = " + formula;
  text += format(": {}", owner_words(moment.owner));
  if (!moment.module_name.empty()) text += " of " + moment.module_name;
  text += format(", {}", phase_words(moment.phase));
  if (moment.step == 0 && moment.phase != Phase::Init) text += " of the first step";
  if (!moment.rule.empty()) text += format(" ({})", moment.rule);
  return text + "." + ordinal_text(moment.same_size_live, moment.bytes);
}

std::string formula_text(Bytes bytes, Bytes tolerance, const RequestMoment* moment,
                         const Experiment& experiment, const Strategy& strategy) {
  SizeQuestion question{bytes, tolerance, {}, {}};
  if (moment != nullptr) {
    question.module = moment->module;
    question.memory_class = moment->memory_class;
  }
  const std::optional<SizeFormula> formula = size_formula(question, experiment, strategy);
  return formula ? formula->text : "";
}

bool depends_on_tokens(MemoryCause cause) {
  return cause == MemoryCause::Activations || cause == MemoryCause::Logits;
}

/// A request larger than any of the job: of what grows with the tokens, the job had more.
std::string larger_than_all(Bytes asked, const RequestMoment& largest, const BatchShape& batch) {
  std::string text = format("No buffer of the simulated job is that large; its largest is {}, {}.",
                            owner_words(largest.owner), size_text(largest.bytes));
  if (!depends_on_tokens(largest.cause)) return text;
  const double times =
      static_cast<double>(asked.count()) / static_cast<double>(largest.bytes.count());
  const double tokens = static_cast<double>(batch.tokens()) * times;
  return text + format(
                    " It grows with the micro batch: if it is what was asked for, the job had {} "
                    "tokens there, not {}.",
                    count_text(tokens), batch.tokens());
}

/// Of a request as large as an fp32 buffer of all that a rank updates, which stage 3 cuts.
std::string uncut_sentence(Bytes asked, const Experiment& experiment, const Strategy& strategy) {
  constexpr double kApart = 0.01;
  constexpr double kFp32 = 4;
  if (strategy.framework != Framework::DeepSpeed || strategy.zero.stage < 3) return "";
  const double own = static_cast<double>(trainable_parameter_count(experiment.model)) /
                     sharing_ranks(experiment, strategy);
  const double elements = static_cast<double>(asked.count()) / kFp32;
  const auto sub_group = static_cast<double>(strategy.zero.sub_group_size);
  if (std::abs(elements - own) > kApart * own || own <= (1 + kApart) * sub_group) return "";
  return format(
      " An fp32 buffer of all that a rank updates has that size. The simulated job cuts "
      "such buffers at sub_group_size {}: the real one has a larger sub_group_size, or "
      "keeps its gradients in fp32.",
      count_text(sub_group));
}

std::string not_found_sentence(const OomFigures& figures, const std::string& formula,
                               const RequestSearch& search, const Experiment& experiment,
                               const Strategy& strategy) {
  const Bytes asked = figures.request->bytes;
  std::string text = formula.empty() ? format("{}: {}.", size_text(asked), size_in_elements(asked))
                                     : format("{} = {}.", size_text(asked), formula);
  const std::string uncut = uncut_sentence(asked, experiment, strategy);
  if (!uncut.empty()) return text + uncut;
  if (search.largest && asked > search.largest->bytes) {
    return text + " " + larger_than_all(asked, *search.largest, batch_of(experiment, strategy));
  }
  return text +
         " The simulated job asks for nothing of this size: the real one differs from it in "
         "model, batch or configuration.";
}

std::string too_early_sentence(const OomFigures& figures, const std::string& formula,
                               const RequestMoment& moment) {
  const Bytes asked = figures.request->bytes;
  return format(
      "{}{}: the simulated job asks for that much only as {}, {}, where {:.2f} GiB are "
      "allocated. So it is another buffer of this size that failed: the real job's "
      "configuration differs.",
      size_text(asked), formula.empty() ? "" : " = " + formula, owner_words(moment.owner),
      phase_words(moment.phase), moment.allocated.gib());
}

// ---- causes ------------------------------------------------------------------------------------

struct CauseShare {
  MemoryCause cause;
  Bytes bytes;
};

/// Whether it names a mechanism that a job can be told of.
bool is_told(MemoryCause cause) {
  return cause != MemoryCause::OtherTemporaries;
}

/// What was held by cause, the request included, the largest first; without model states.
std::vector<CauseShare> transient_shares(const RequestMoment& moment) {
  std::vector<CauseShare> shares;
  for (std::size_t i = 0; i < kMemoryCauses; ++i) {
    const auto cause = static_cast<MemoryCause>(i);
    const Bytes own = cause == moment.cause ? moment.bytes : Bytes(0);
    if (cause == MemoryCause::ModelStates || !is_told(cause)) continue;
    shares.push_back({cause, moment.by_cause[i] + own});
  }
  std::stable_sort(shares.begin(), shares.end(),
                   [](const CauseShare& a, const CauseShare& b) { return a.bytes > b.bytes; });
  return shares;
}

Bytes states_of(const RequestMoment& moment) {
  const Bytes own = moment.cause == MemoryCause::ModelStates ? moment.bytes : Bytes(0);
  return moment.by_cause[static_cast<std::size_t>(MemoryCause::ModelStates)] + own;
}

void add_code(std::vector<std::string>& causes, std::string_view code) {
  if (std::find(causes.begin(), causes.end(), code) == causes.end()) causes.emplace_back(code);
}

/// \param available  to the allocator.
/// \param own        whether the moment's request is the one that failed.
void add_moment_causes(const RequestMoment& moment, Bytes available, bool own,
                       std::vector<std::string>& causes) {
  constexpr double kSmall = 1.0 / 20;
  constexpr double kLarge = 1.0 / 3;
  const std::string_view states = to_string(MemoryCause::ModelStates);
  if (states_of(moment) > available) add_code(causes, states);
  for (const CauseShare& share : transient_shares(moment)) {
    if (share.bytes.gib() >= kSmall * available.gib() && share.bytes > Bytes(0)) {
      add_code(causes, to_string(share.cause));
    }
  }
  if (own && is_told(moment.cause)) add_code(causes, to_string(moment.cause));
  if (states_of(moment).gib() >= kLarge * available.gib()) add_code(causes, states);
}

std::string share_text(const RequestMoment& moment) {
  std::vector<std::string> parts;
  std::vector<CauseShare> shares;
  for (std::size_t i = 0; i < kMemoryCauses; ++i) {
    shares.push_back({static_cast<MemoryCause>(i), moment.by_cause[i]});
  }
  std::stable_sort(shares.begin(), shares.end(),
                   [](const CauseShare& a, const CauseShare& b) { return a.bytes > b.bytes; });
  constexpr double kWorthTelling = 0.005;  // GiB: below, two decimals show nothing
  for (const CauseShare& share : shares) {
    if (share.bytes.gib() < kWorthTelling) continue;
    parts.push_back(format("{:.2f} GiB of {}", share.bytes.gib(), in_words(share.cause)));
  }
  return join(parts, ", ");
}

/// \param own  whether the moment's request is the one that failed.
std::string filled_sentence(const RequestMoment& moment, bool own, const OomFigures& figures) {
  std::string text =
      own ? format("Before it {:.2f} GiB are allocated in the simulation", moment.allocated.gib())
          : format("Nearest to that, the simulation has {:.2f} GiB allocated {}, before {}",
                   moment.allocated.gib(), phase_words(moment.phase), owner_words(moment.owner));
  if (figures.allocated) {
    text += format(" (in the message {:.2f} GiB)", figures.allocated->bytes.gib());
  }
  const std::string shares = share_text(moment);
  return text + (shares.empty() ? "." : ": " + shares + ".");
}

// ---- together ----------------------------------------------------------------------------------

bool is_unshared(const Experiment& experiment, const Strategy& strategy) {
  return strategy.framework == Framework::DeepSpeed && strategy.zero.stage > 0 &&
         experiment.cluster.world_size() == 1;
}

/// What a change has to free for the message's request, beside what was free.
Bytes shortfall(const OomFigures& figures) {
  if (!figures.request) return {};
  return figures.request->bytes - (figures.free ? figures.free->bytes : Bytes(0));
}

struct Job {
  const OomFigures& figures;
  const Experiment& experiment;
  const Strategy& strategy;
  MemoryReport memory;
  RequestSearch search;
};

/// Whether a request can have failed although it finds so little allocated: a quarter of the GPU is
/// more than fragmentation and a model that differs a little explain.
bool is_too_early(const Job& job, const RequestMoment& moment) {
  constexpr double kMostApart = 0.25;
  const std::optional<Bytes> allocated = job.figures.allocated_at_most(job.search.context);
  return allocated &&
         (*allocated - moment.allocated).gib() > kMostApart * job.memory.capacity.gib();
}

void find_request(const Job& job, OomExplanation& result) {
  const OomFigures& figures = job.figures;
  if (!figures.request) {
    result.found = figures.any() ? job.search.as_full : job.search.failure;
    if (!result.found) result.found = job.search.failure ? job.search.failure : job.search.fullest;
    if (!figures.any() && job.search.failure) result.match = OomMatch::Simulated;
    return;
  }
  result.match = job.search.exact  ? OomMatch::Exact
                 : job.search.near ? OomMatch::Near
                                   : OomMatch::NotFound;
  result.found = job.search.exact ? job.search.exact : job.search.near;
  if (result.found && is_too_early(job, *result.found)) result.match = OomMatch::TooEarly;
}

void tell_request(const Job& job, OomExplanation& result) {
  const OomFigures& figures = job.figures;
  if (result.match == OomMatch::TooEarly) {
    const RequestMoment& moment = *result.found;
    result.formula = formula_text(moment.bytes, Bytes(0), &moment, job.experiment, job.strategy);
    result.request = too_early_sentence(figures, result.formula, moment);
    return;
  }
  if (result.found) {
    const RequestMoment& moment = *result.found;
    result.formula = formula_text(moment.bytes, Bytes(0), &moment, job.experiment, job.strategy);
    const Bytes shown = figures.request ? figures.request->bytes : moment.bytes;
    if (result.match == OomMatch::NotLookedFor) {
      result.request = format("The job fits in the simulation; most is allocated after {}, {}.",
                              owner_words(moment.owner), phase_words(moment.phase));
      if (figures.any()) result.request = "The message does not tell what was asked for.";
      return;
    }
    result.request = request_sentence(size_text(shown), moment, result.formula, result.match);
    return;
  }
  result.formula = formula_text(figures.request->bytes, figures.request->tolerance, nullptr,
                                job.experiment, job.strategy);
  result.request =
      not_found_sentence(figures, result.formula, job.search, job.experiment, job.strategy);
}

/// The moment of the simulated job that is nearest to that of the message.
const std::optional<RequestMoment>& held_moment(const Job& job, const OomExplanation& result) {
  if (result.found && result.match != OomMatch::TooEarly) return result.found;
  return job.search.as_full ? job.search.as_full : job.search.fullest;
}

void add_causes(const Job& job, OomExplanation& result) {
  const Bytes capacity = job.figures.total ? job.figures.total->bytes : job.memory.capacity;
  const Bytes available = capacity - job.memory.context;
  if (is_fragmented(job.figures)) add_code(result.causes, "fragmentation");
  if (is_unshared(job.experiment, job.strategy)) add_code(result.causes, "no_sharding");
  if (result.found && result.match != OomMatch::TooEarly) {
    add_moment_causes(*result.found, available, true, result.causes);
    return;
  }
  const RequestSearch& search = job.search;
  const bool larger = search.largest && job.figures.request->bytes > search.largest->bytes;
  if (larger && depends_on_tokens(search.largest->cause)) {
    add_code(result.causes, to_string(search.largest->cause));
  }
  const std::optional<RequestMoment>& moment = held_moment(job, result);
  if (moment) add_moment_causes(*moment, available, false, result.causes);
}

void add_ways(const Job& job, bool timed, OomExplanation& result) {
  const bool says_otherwise = result.simulated_fits && job.figures.any();
  WaysOutOptions options;
  options.timed = timed;
  if (says_otherwise) options.at_least_freed = std::max(shortfall(job.figures), Bytes(1));
  if (!result.simulated_fits || says_otherwise) {
    result.ways_out = ways_out(job.experiment, job.strategy, options);
  }
  if (!is_fragmented(job.figures)) return;
  const bool has_it = std::any_of(
      result.ways_out.begin(), result.ways_out.end(),
      [](const WayOut& way) { return way.is_enough && way.code == "expandable_segments"; });
  const bool can = !job.experiment.alloc_conf.expandable_segments;
  if (!has_it && can) {
    std::erase_if(result.ways_out,
                  [](const WayOut& way) { return way.code == "expandable_segments"; });
    result.ways_out.insert(result.ways_out.begin(), defragmentation(job.figures));
  }
}

}  // namespace

std::string_view to_string(OomMatch match) {
  switch (match) {
    case OomMatch::NotLookedFor:
      return "not_looked_for";
    case OomMatch::Exact:
      return "exact";
    case OomMatch::Near:
      return "near";
    case OomMatch::Simulated:
      return "simulated";
    case OomMatch::TooEarly:
      return "too_early";
    case OomMatch::NotFound:
      break;
  }
  return "not_found";
}

OomExplanation explain_oom(const OomFigures& figures) {
  OomExplanation result;
  if (figures.request) {
    const Bytes asked = figures.request->bytes;
    result.request = format("{}: {}.", size_text(asked), size_in_elements(asked));
  }
  if (is_fragmented(figures)) {
    add_code(result.causes, "fragmentation");
    result.ways_out.push_back(defragmentation(figures));
  }
  add_message_evidence(figures, std::nullopt, result.evidence);
  return result;
}

OomExplanation explain_oom(const OomFigures& figures, const Experiment& experiment,
                           const Strategy& strategy, bool timed) {
  const Job job{figures, experiment, strategy, replayed_memory(experiment, strategy),
                find_requests(figures, experiment, strategy)};
  OomExplanation result;
  result.simulated_fits = verdict_of(job.memory) != Verdict::DoesNotFit;
  find_request(job, result);
  tell_request(job, result);
  const std::optional<RequestMoment>& held = held_moment(job, result);
  const bool own = &held == &result.found;
  if (held) result.evidence.push_back(filled_sentence(*held, own, figures));
  add_message_evidence(figures, job.memory.context, result.evidence);
  if (result.simulated_fits && figures.any()) {
    result.evidence.push_back(format("The simulated job fits: it allocates {} at most, of {}.",
                                     size_text(job.memory.peak_allocated),
                                     size_text(job.memory.capacity)));
  }
  add_causes(job, result);
  add_ways(job, timed, result);
  if (timed && !result.ways_out.empty()) result.step = step_time(experiment, strategy);
  return result;
}

}  // namespace zerosim
