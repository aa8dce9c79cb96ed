// Reads a Hugging Face config.json: its model_type says which family builds the model.

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/json.h"
#include "sim/base/text.h"
#include "sim/model/families/families.h"
#include "sim/model/readers.h"

namespace zerosim::internal {
namespace {

struct Family {
  std::string_view model_type;
  Model (*build)(Config& config, const std::string& model_type);
  bool fp32_logits = true;  ///< in transformers before 4.46
};

constexpr Family kFamilies[] = {
    {"baichuan", build_baichuan},
    {"bert", build_bert},
    {"distilbert", build_distilbert},
    {"gemma", build_gemma2},
    {"gemma2", build_gemma2},
    {"mt5", build_t5},
    {"phi3", build_phi3},
    {"roberta", build_bert},
    {"t5", build_t5},
    {"bloom", build_bloom, false},
    {"falcon", build_falcon, false},
    {"gpt_neox", build_gpt_neox, false},
    {"gptj", build_gptj},
    {"opt", build_opt, false},
    {"deepseek_v2", build_deepseek},
    {"deepseek_v3", build_deepseek},
    {"mixtral", build_mixtral},
    {"qwen2_moe", build_qwen_moe},
    {"qwen3_moe", build_qwen_moe},
    {"gpt2", build_gpt2, false},
    {"gpt_bigcode", build_gpt2, false},
    {"llama", build_llama},
    {"mistral", build_llama},
    {"qwen2", build_llama},
    {"qwen3", build_llama},
};

}  // namespace

Model read_hugging_face(const JsonDocument& document) {
  Config config(document);
  const std::string model_type = config.object().string("model_type");
  std::vector<std::string> known;
  for (const Family& family : kFamilies) {
    known.emplace_back(family.model_type);
    if (family.model_type != model_type) continue;
    Model model = family.build(config, model_type);
    model.family = model_type;
    model.fp32_logits = family.fp32_logits;
    model.assumptions = config.assumptions();
    return model;
  }
  std::sort(known.begin(), known.end());
  config.fail(
      "model_type",
      format("found \"{}\", expected one of {}{}; a module listing describes any other model",
             model_type, join(known, ", "), did_you_mean(model_type, known)));
}

}  // namespace zerosim::internal
