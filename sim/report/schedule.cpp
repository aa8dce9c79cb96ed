// The list of operations that a rank issues, in words and in JSON.

#include <algorithm>
#include <string>
#include <vector>

#include "sim/base/text.h"
#include "sim/report/report_text.h"
#include "sim/report/text_table.h"

namespace zerosim {

namespace {

using Align = TextTable::Align;

/// Looks an operation's payload and names up in its program.
class OpView {
 public:
  OpView(const Program& program, const RankProgram& rank, const Op& op)
      : program_(program), rank_(rank), op_(op) {}

  [[nodiscard]] const Collective& collective() const { return rank_.collectives[payload()]; }
  [[nodiscard]] const ProcessGroup& group() const {
    return program_.groups[collective().group.index()];
  }
  [[nodiscard]] std::string module() const {
    return op_.module.valid() ? program_.module_names[op_.module.index()] : "";
  }
  [[nodiscard]] std::string stream() const {
    return op_.stream.valid() ? rank_.streams[op_.stream.index()].name : "";
  }
  [[nodiscard]] std::string host() const {
    if (op_.host_work == HostWork::None) return "";
    const std::string name(to_string(op_.host_work));
    return op_.host_count > 1 ? format("{} x {}", op_.host_count, name) : name;
  }
  /// What the operation does, beyond its kind.
  [[nodiscard]] std::string what() const;

 private:
  [[nodiscard]] std::size_t payload() const { return static_cast<std::size_t>(op_.payload); }
  [[nodiscard]] std::string dependencies() const;

  const Program& program_;
  const RankProgram& rank_;
  const Op& op_;
};

std::string OpView::dependencies() const {
  std::vector<std::string> ids;
  for (const OpId id : rank_.dependencies_of(op_)) ids.push_back(format("#{}", id.value()));
  return join(ids, " ");
}

const char* place_of(const Buffer& buffer) {
  switch (buffer.place) {
    case MemoryPlace::Device:
      break;
    case MemoryPlace::Host:
      return " on the host";
    case MemoryPlace::PinnedHost:
      return " on the host, pinned";
    case MemoryPlace::NodeHost:
      return " on the host, once a node";
  }
  return "";
}

std::string OpView::what() const {
  switch (op_.kind) {
    case OpKind::Kernel: {
      const Kernel& kernel = rank_.kernels[payload()];
      return format("{} {:.4g} GFLOP {:.4g} MB", kernel.name, kernel.flops.count() / 1e9,
                    static_cast<double>(kernel.bytes.count()) / 1e6);
    }
    case OpKind::Copy: {
      const Copy& copy = rank_.copies[payload()];
      return format(
          "{} {} B{}",
          copy.direction == Copy::Direction::HostToDevice ? "host_to_device" : "device_to_host",
          copy.bytes.count(), copy.pinned ? "" : " pageable");
    }
    case OpKind::Collective:
      return format("{} {} -> {} {} {}", to_string(collective().kind), collective().input_elements,
                    collective().output_elements, to_string(collective().dtype), group().name);
    case OpKind::StreamWait:
    case OpKind::HostWait:
      return dependencies();
    case OpKind::Allocate:
    case OpKind::Free: {
      const Buffer& buffer = rank_.buffers[payload()];
      return format("{} {} B {}{}", buffer.owner, buffer.bytes.count(),
                    to_string(buffer.memory_class), place_of(buffer));
    }
    case OpKind::Host: {
      if (op_.payload < 0) break;
      const HostPass& pass = rank_.host_passes[payload()];
      return format("{} {:.4g} MB", pass.name, static_cast<double>(pass.bytes.count()) / 1e6);
    }
    case OpKind::EmptyCache:
      break;
  }
  return "";
}

std::string number_or_dash(int value) {
  return value < 0 ? "-" : std::to_string(value);
}

std::string title(const Program& program) {
  return wrap(format("{}: rank {} of {}, steps {} to {}", program.strategy,
                     program.ranks.front().representative.value(), program.world_size,
                     program.first_step, program.first_step + program.steps - 1),
              kReportColumns);
}

std::string collectives_table(const Program& program) {
  const RankProgram& rank = program.ranks.front();
  TextTable table({Align::Right, Align::Right, Align::Right, Align::Left, Align::Left, Align::Right,
                   Align::Right, Align::Left, Align::Left, Align::Left, Align::Right, Align::Right,
                   Align::Left, Align::Left, Align::Left});
  table.add_row({"#", "step", "micro", "phase", "op", "input", "output", "dtype", "group", "async",
                 "co", "root", "stream", "rule", "module"});
  table.add_rule();
  int number = 0;
  for (const Op& op : rank.ops) {
    if (op.kind != OpKind::Collective) continue;
    const OpView view(program, rank, op);
    const Collective& collective = view.collective();
    table.add_row(
        {std::to_string(number++), std::to_string(op.step), std::to_string(op.micro_step),
         std::string(to_string(op.phase)), std::string(to_string(collective.kind)),
         std::to_string(collective.input_elements), std::to_string(collective.output_elements),
         std::string(to_string(collective.dtype)),
         format("{}({})", view.group().name, view.group().size), collective.async ? "yes" : "no",
         number_or_dash(collective.coalesced), number_or_dash(collective.root), view.stream(),
         std::string(op.rule), view.module()});
  }
  return table.text() +
         format("{} collectives; input and output in elements of this rank\n", number);
}

/// "4160 elements: h.0.attn.proj.weight h.0.attn.proj.bias".
std::string annotation_text(const Program& program, const RankProgram& rank,
                            const Annotation& annotation) {
  if (annotation.kind == AnnotationKind::FetchSubModule) {
    return format("{} elements available", annotation.elements);
  }
  constexpr std::size_t kShown = 3;
  const auto parameters = rank.parameters_of(annotation);
  std::vector<std::string> names;
  for (std::size_t i = 0; i < std::min(kShown, parameters.size()); ++i) {
    names.push_back(program.parameter_names[parameters[i].index()]);
  }
  const std::string more =
      parameters.size() > kShown ? format(" and {} more", parameters.size() - kShown) : "";
  return format("{} elements: {}{}", annotation.elements, join(names, " "), more);
}

void add_annotation(const Program& program, const Annotation& annotation, TextTable& table) {
  const RankProgram& rank = program.ranks.front();
  table.add_row({"", std::to_string(annotation.step), std::to_string(annotation.micro_step),
                 std::string(to_string(annotation.phase)),
                 format("[{}]", to_string(annotation.kind)),
                 annotation_text(program, rank, annotation), "", "", "",
                 annotation.module.valid() ? program.module_names[annotation.module.index()] : ""});
}

/// Whether `id` is `module` or below it.
bool is_in(const Program& program, ModuleId id, const std::string& module) {
  if (module.empty()) return true;
  if (!id.valid()) return false;
  const std::string& name = program.module_names[id.index()];
  return name == module || name.starts_with(module + ".");
}

std::string operations_table(const Program& program, const std::string& module) {
  const RankProgram& rank = program.ranks.front();
  TextTable table({Align::Right, Align::Right, Align::Right, Align::Left, Align::Left, Align::Left,
                   Align::Left, Align::Left, Align::Left, Align::Left});
  table.add_row(
      {"#", "step", "micro", "phase", "kind", "what", "stream", "host work", "rule", "module"});
  table.add_rule();
  std::size_t shown = 0;
  auto annotation = rank.annotations.begin();
  for (std::size_t i = 0; i < rank.ops.size(); ++i) {
    for (; annotation != rank.annotations.end() && annotation->before.index() == i; ++annotation) {
      if (is_in(program, annotation->module, module)) add_annotation(program, *annotation, table);
    }
    const Op& op = rank.ops[i];
    if (!is_in(program, op.module, module)) continue;
    ++shown;
    const OpView view(program, rank, op);
    table.add_row({std::to_string(i), std::to_string(op.step), std::to_string(op.micro_step),
                   std::string(to_string(op.phase)), std::string(to_string(op.kind)), view.what(),
                   view.stream(), view.host(), std::string(op.rule), view.module()});
  }
  for (; annotation != rank.annotations.end(); ++annotation) {
    if (is_in(program, annotation->module, module)) add_annotation(program, *annotation, table);
  }
  const std::string count =
      shown == rank.ops.size() ? format("{}", shown) : format("{} of {}", shown, rank.ops.size());
  return table.text() + count + " operations; [in brackets] what those that follow are for\n";
}

JsonValue index_or_null(int value) {
  return value < 0 ? JsonValue() : JsonValue(value);
}

JsonValue collective_json(const Op& op, const OpView& view) {
  const Collective& collective = view.collective();
  JsonValue json(Json::objectValue);
  json["step"] = op.step;
  json["micro_step"] = op.micro_step;
  json["phase"] = std::string(to_string(op.phase));
  json["op"] = std::string(to_string(collective.kind));
  json["input_elements"] = static_cast<Json::Int64>(collective.input_elements);
  json["output_elements"] = static_cast<Json::Int64>(collective.output_elements);
  json["dtype"] = std::string(to_string(collective.dtype));
  json["group"] = view.group().name;
  json["group_size"] = view.group().size;
  json["async"] = collective.async;
  json["coalesced"] = index_or_null(collective.coalesced);
  json["root"] = index_or_null(collective.root);
  json["stream"] = view.stream();
  json["module"] = view.module();
  json["rule"] = std::string(op.rule);
  return json;
}

/// \param after  recorded collectives before it
JsonValue annotation_json(const Program& program, const Annotation& annotation, int after) {
  JsonValue json(Json::objectValue);
  json["what"] = std::string(to_string(annotation.kind));
  json["step"] = annotation.step;
  json["micro_step"] = annotation.micro_step;
  json["phase"] = std::string(to_string(annotation.phase));
  json["module"] = annotation.module.valid() ? program.module_names[annotation.module.index()] : "";
  json["elements"] = static_cast<Json::Int64>(annotation.elements);
  JsonValue& parameters = json["parameters"] = JsonValue(Json::arrayValue);
  for (const ParameterId id : program.ranks.front().parameters_of(annotation)) {
    parameters.append(program.parameter_names[id.index()]);
  }
  json["after"] = after;
  return json;
}

/// The markers of recordings: why collectives are there.
JsonValue annotations_json(const Program& program) {
  const RankProgram& rank = program.ranks.front();
  JsonValue json(Json::arrayValue);
  int collectives = 0;
  std::size_t op = 0;
  for (const Annotation& annotation : rank.annotations) {
    for (; op < annotation.before.index(); ++op) {
      if (rank.ops[op].kind != OpKind::Collective) continue;
      const OpView view(program, rank, rank.ops[op]);
      collectives += view.collective().recorded ? 1 : 0;
    }
    json.append(annotation_json(program, annotation, collectives));
  }
  return json;
}

}  // namespace

std::string schedule_text(const Program& program, bool all_operations, const std::string& module) {
  ZS_CHECK(!program.ranks.empty(), "a program has at least one rank class");
  std::string out = title(program) + "\n";
  out += all_operations ? operations_table(program, module) : collectives_table(program);
  if (program.assumptions.empty()) return out;
  out += "\nAssumptions\n";
  for (const std::string& sentence : program.assumptions) {
    out += wrap(sentence, kReportColumns, "  - ");
  }
  return out;
}

JsonValue schedule_json(const Program& program) {
  ZS_CHECK(!program.ranks.empty(), "a program has at least one rank class");
  const RankProgram& rank = program.ranks.front();
  JsonValue json(Json::objectValue);
  json["version"] = kJsonVersion;
  JsonValue& inputs = json["inputs"] = JsonValue(Json::objectValue);
  inputs["strategy"] = program.strategy;
  inputs["world_size"] = program.world_size;
  inputs["rank"] = rank.representative.value();
  inputs["first_step"] = program.first_step;
  inputs["steps"] = program.steps;
  JsonValue& collectives = json["collectives"] = JsonValue(Json::arrayValue);
  // What C++ issues by itself is not seen by recordings: kept apart, so that the first list can be
  // compared with one row by row. `after` is the number of recorded collectives before it.
  JsonValue& unrecorded = json["unrecorded_collectives"] = JsonValue(Json::arrayValue);
  for (const Op& op : rank.ops) {
    if (op.kind != OpKind::Collective) continue;
    const OpView view(program, rank, op);
    if (view.collective().recorded) {
      collectives.append(collective_json(op, view));
    } else {
      JsonValue entry = collective_json(op, view);
      entry["after"] = static_cast<int>(collectives.size());
      unrecorded.append(entry);
    }
  }
  json["annotations"] = annotations_json(program);
  JsonValue& assumptions = json["assumptions"] = JsonValue(Json::arrayValue);
  for (const std::string& sentence : program.assumptions) assumptions.append(sentence);
  return json;
}

}  // namespace zerosim
