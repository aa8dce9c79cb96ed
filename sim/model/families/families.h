/// \file
/// The model families of Hugging Face's transformers, one a file: each reads its keys and lays out
/// the modules of its modeling_<family>.py, with their names, order of registration and way of
/// calling.
///
/// To add one: write build_<family> in a .cpp here, declare it below and add its model_type to the
/// table in huggingface.cpp.
#pragma once

#include <string>

#include "sim/model/families/config.h"
#include "sim/model/model.h"

namespace zerosim::internal {

// Each fills in parameters, modules, operators, shape and the sentences about its own reading;
// name and family are the caller's. `model_type` tells the members of a family apart.
[[nodiscard]] Model build_llama(Config& config, const std::string& model_type);
[[nodiscard]] Model build_gpt2(Config& config, const std::string& model_type);
[[nodiscard]] Model build_gpt_neox(Config& config, const std::string& model_type);
[[nodiscard]] Model build_gptj(Config& config, const std::string& model_type);
[[nodiscard]] Model build_opt(Config& config, const std::string& model_type);
[[nodiscard]] Model build_bloom(Config& config, const std::string& model_type);
[[nodiscard]] Model build_falcon(Config& config, const std::string& model_type);
[[nodiscard]] Model build_phi3(Config& config, const std::string& model_type);
[[nodiscard]] Model build_gemma2(Config& config, const std::string& model_type);
[[nodiscard]] Model build_baichuan(Config& config, const std::string& model_type);
[[nodiscard]] Model build_bert(Config& config, const std::string& model_type);
[[nodiscard]] Model build_distilbert(Config& config, const std::string& model_type);
[[nodiscard]] Model build_t5(Config& config, const std::string& model_type);
[[nodiscard]] Model build_mixtral(Config& config, const std::string& model_type);
[[nodiscard]] Model build_qwen_moe(Config& config, const std::string& model_type);
[[nodiscard]] Model build_deepseek(Config& config, const std::string& model_type);

}  // namespace zerosim::internal
