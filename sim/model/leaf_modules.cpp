#include "sim/model/leaf_modules.h"

#include <algorithm>
#include <set>

namespace zerosim {
namespace {

/// Classes of torch.nn.modules.container: DeepSpeed makes no leaf of them and does not count them.
bool is_container(const Module& module) {
  return module.class_name == "Sequential" || module.class_name == "ModuleList" ||
         module.class_name == "ModuleDict" || module.class_name == "ParameterList" ||
         module.class_name == "ParameterDict";
}

/// Sums over a module and all below it.
struct Subtree {
  std::int64_t elements = 0;
  std::int64_t layers = 0;  ///< modules, containers left out, with parameters in their own subtree
  bool has_children = false;
};

/// Children follow their parents in `Model::modules`: one pass from the end adds them up.
std::vector<Subtree> subtrees(const Model& model) {
  std::vector<Subtree> result(model.modules.size());
  for (std::size_t i = model.modules.size(); i-- > 0;) {
    const Module& module = model.modules[i];
    for (const ParameterId id : module.parameters) {
      result[i].elements += model.parameters[id.index()].elements;
    }
    result[i].layers += result[i].elements > 0 && !is_container(module) ? 1 : 0;
    if (!module.parent.valid()) continue;
    Subtree& parent = result[module.parent.index()];
    parent.elements += result[i].elements;
    parent.layers += result[i].layers;
    parent.has_children = true;
  }
  return result;
}

/// By module: the leaf that it is or is below, if any.
std::vector<ModuleId> enclosing_leaves(const Model& model, const std::vector<ModuleId>& leaves) {
  const std::set<ModuleId> marked(leaves.begin(), leaves.end());
  std::vector<ModuleId> result(model.modules.size());
  for (std::size_t i = 0; i < model.modules.size(); ++i) {
    const ModuleId parent = model.modules[i].parent;
    if (parent.valid() && result[parent.index()].valid()) {
      result[i] = result[parent.index()];
    } else if (marked.contains(ModuleId(i))) {
      result[i] = ModuleId(i);
    }
  }
  return result;
}

class LeafFolder {
 public:
  LeafFolder(Model& model, const std::vector<ModuleId>& leaves)
      : model_(model), leaf_of_(enclosing_leaves(model, leaves)) {}

  void fold() {
    gather_parameters();
    remove_hooks();
    gather_gradients();
  }

 private:
  [[nodiscard]] bool is_below_leaf(ModuleId id) const {
    return leaf_of_[id.index()].valid() && leaf_of_[id.index()] != id;
  }

  void gather_parameters() {
    for (std::size_t i = 0; i < model_.modules.size(); ++i) {
      if (!is_below_leaf(ModuleId(i))) continue;
      Module& leaf = model_.modules[leaf_of_[i].index()];
      std::vector<ParameterId>& own = model_.modules[i].parameters;
      leaf.parameters.insert(leaf.parameters.end(), own.begin(), own.end());
      own.clear();
    }
    for (std::size_t i = 0; i < model_.modules.size(); ++i) {
      if (leaf_of_[i] != ModuleId(i)) continue;
      Module& leaf = model_.modules[i];
      leaf.leaf = true;
      std::sort(leaf.parameters.begin(), leaf.parameters.end());
      leaf.parameters.erase(std::unique(leaf.parameters.begin(), leaf.parameters.end()),
                            leaf.parameters.end());
    }
  }

  void remove_hooks() {
    std::erase_if(model_.forward, [this](const ExecutionStep& step) {
      return step.kind != ExecutionStep::Kind::Compute && is_below_leaf(step.module);
    });
  }

  /// To the first operator of the leaf that has a backward: its backward is the leaf's last.
  void gather_gradients() {
    const std::set<ParameterId> elsewhere = gradients_outside_leaves();
    std::set<ModuleId> done;
    for (const ExecutionStep& step : model_.forward) {
      const ModuleId leaf = leaf_of_[step.module.index()];
      if (step.kind != ExecutionStep::Kind::Compute || !leaf.valid()) continue;
      Operator& op = model_.operators[static_cast<std::size_t>(step.operation)];
      op.gradients.clear();
      if (!op.output_gradient || !done.insert(leaf).second) continue;
      for (const ParameterId id : model_.modules[leaf.index()].parameters) {
        const bool arrives = model_.parameters[id.index()].trainable && !elsewhere.contains(id);
        if (arrives) op.gradients.push_back(id);
      }
    }
  }

  [[nodiscard]] std::set<ParameterId> gradients_outside_leaves() const {
    std::set<ParameterId> result;
    for (const Operator& op : model_.operators) {
      if (leaf_of_[op.module.index()].valid()) continue;
      result.insert(op.gradients.begin(), op.gradients.end());
    }
    return result;
  }

  Model& model_;
  std::vector<ModuleId> leaf_of_;
};

}  // namespace

std::vector<ModuleId> leaf_modules_by_granularity(const Model& model, std::int64_t threshold) {
  constexpr std::int64_t kLargestLeaf = 1'000'000'000;  // elements (C2.5b)
  const std::vector<Subtree> trees = subtrees(model);
  std::vector<ModuleId> leaves;
  for (std::size_t i = 0; i < trees.size(); ++i) {
    const Subtree& tree = trees[i];
    if (!tree.has_children || tree.layers == 0 || tree.elements > kLargestLeaf) continue;
    if (is_container(model.modules[i])) continue;
    if (tree.elements / tree.layers <= threshold) leaves.emplace_back(i);
  }
  return leaves;
}

Model with_leaf_modules(Model model, const std::vector<ModuleId>& leaves) {
  LeafFolder(model, leaves).fold();
  return model;
}

}  // namespace zerosim
