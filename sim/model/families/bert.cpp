// BERT and RoBERTa: modeling_bert.py, modeling_roberta.py of transformers.

#include <string>
#include <utility>

#include "sim/base/text.h"
#include "sim/model/families/families.h"
#include "sim/model/families/layers.h"

namespace zerosim::internal {
namespace {

/// What differs between the two; defaults of configuration_bert.py and configuration_roberta.py.
struct BertFamily {
  const char* prefix;   ///< of class names: "BertLayer"
  const char* encoder;  ///< name of the encoder in a model with a head: "bert"
  std::int64_t vocab_size;
  bool has_pretraining;  ///< there is a ...ForPreTraining
};

constexpr BertFamily kBert = {"Bert", "bert", 30522, true};
constexpr BertFamily kRoberta = {"Roberta", "roberta", 50265, false};

enum class BertTask {
  None,         ///< BertModel: encoder and pooler
  MaskedLm,     ///< encoder and language-modelling head
  PreTraining,  ///< encoder, pooler, language-modelling head and next-sentence head
};

struct BertConfig {
  const BertFamily* family = nullptr;
  BertTask task = BertTask::MaskedLm;
  ModelShape shape;
  std::int64_t position_rows = 0;
  std::int64_t token_types = 0;
  std::string activation_class;
  bool tied = true;
};

/// RoBERTa numbers positions from padding_idx + 1 = 2 on, and its tables have two rows more than
/// positions.
constexpr std::int64_t kRobertaOffset = 2;

void read_positions(Config& config, BertConfig& result) {
  const std::int64_t offset = result.family == &kRoberta ? kRobertaOffset : 0;
  result.position_rows = config.max_positions({"max_position_embeddings"}, 512);
  if (result.position_rows <= offset) {
    config.fail("max_position_embeddings",
                format("found {}, expected more than {}: RoBERTa's first rows are no positions",
                       result.position_rows, offset));
  }
  result.shape.max_positions = result.position_rows - offset;
}

/// Which model of the family is built: the first of `architectures` that is known.
BertTask read_task(Config& config, const BertFamily& family) {
  const std::string prefix = family.prefix;
  const std::string masked = prefix + "ForMaskedLM";
  if (!config.has("architectures")) {
    config.assume(format(R"(architectures = ["{}"]: not in the config; {}Model would have no )"
                         "loss",
                         masked, prefix));
    return BertTask::MaskedLm;
  }
  for (const std::string& architecture : config.object().strings("architectures")) {
    if (architecture == masked) return BertTask::MaskedLm;
    if (architecture == prefix + "Model") return BertTask::None;
    if (family.has_pretraining && architecture == prefix + "ForPreTraining") {
      return BertTask::PreTraining;
    }
  }
  config.note_architecture(masked);
  return BertTask::MaskedLm;
}

BertConfig read_bert_config(Config& config, const BertFamily& family) {
  BertConfig result;
  result.family = &family;
  result.task = read_task(config, family);
  ModelShape& shape = result.shape;
  shape.hidden = config.hidden();
  shape.layers = config.layers();
  shape.ffn = config.required_size({"intermediate_size"}, "the width of the MLP");
  shape.heads = config.heads();
  shape.kv_heads = shape.heads;
  shape.head_dim = config.divided_head_dim(shape.hidden, shape.heads);
  shape.vocab = config.vocab(family.vocab_size);
  read_positions(config, result);
  result.token_types = config.size_or({"type_vocab_size"}, "the number of token types", 2);
  result.activation_class = config.activation_class("hidden_act", "gelu");
  if (result.task != BertTask::None) result.tied = config.flag_or("tie_word_embeddings", true);
  if (config.rare_flag("is_decoder")) {
    config.fail("is_decoder", "found true, expected false: decoders are not supported");
  }
  const std::string positions =
      config.object().optional_string("position_embedding_type").value_or("absolute");
  if (positions != "absolute") {
    config.fail("position_embedding_type",
                format(R"(found "{}", expected "absolute": others are not supported)", positions));
  }
  config.assume(
      "attention.self.dropout is called, as in eager attention; fused attention does "
      "not call it");
  if (result.task != BertTask::MaskedLm) {
    config.assume("the pooler is counted for every token, though it sees the first of a sequence");
  }
  if (result.task == BertTask::None) {
    config.assume(
        format("{}Model has no head: the loss is not part of the model, and backward "
               "starts at its outputs",
               family.prefix));
  }
  return result;
}

/// Lays out the model with or without heads.
class BertLayout : public Layout {
 public:
  explicit BertLayout(BertConfig config)
      : Layout(config.shape),
        config_(std::move(config)),
        encoder_(config_.task == BertTask::None ? "" : config_.family->encoder) {}

 private:
  void register_parameters() override {
    register_encoder();
    if (config_.task != BertTask::None) register_heads();
  }

  [[nodiscard]] std::string class_name(const std::string& suffix) const {
    return config_.family->prefix + suffix;
  }
  [[nodiscard]] bool roberta() const { return config_.family == &kRoberta; }
  [[nodiscard]] bool has_pooler() const { return config_.task != BertTask::MaskedLm; }
  /// Path of a part of the encoder, which may itself be the root.
  [[nodiscard]] std::string in_encoder(const std::string& name) const {
    return encoder_.empty() ? name : encoder_ + "." + name;
  }

  // --- parameters

  void register_encoder() {
    const std::int64_t hidden = shape_.hidden;
    const std::string embeddings = in_encoder("embeddings");
    layers_.register_embedding(embeddings + ".word_embeddings", shape_.vocab, hidden);
    layers_.register_embedding(embeddings + ".position_embeddings", config_.position_rows, hidden);
    layers_.register_embedding(embeddings + ".token_type_embeddings", config_.token_types, hidden);
    layers_.register_layer_norm(embeddings + ".LayerNorm", hidden);
    for (std::int64_t layer = 0; layer < shape_.layers; ++layer) {
      register_layer(in_encoder(format("encoder.layer.{}", layer)));
    }
    if (has_pooler()) layers_.register_linear(in_encoder("pooler.dense"), hidden, hidden, true);
  }

  void register_layer(const std::string& layer) {
    const std::int64_t hidden = shape_.hidden;
    for (const char* name : {"query", "key", "value"}) {
      layers_.register_linear(layer + ".attention.self." + name, hidden, hidden, true);
    }
    layers_.register_linear(layer + ".attention.output.dense", hidden, hidden, true);
    layers_.register_layer_norm(layer + ".attention.output.LayerNorm", hidden);
    layers_.register_linear(layer + ".intermediate.dense", hidden, shape_.ffn, true);
    layers_.register_linear(layer + ".output.dense", shape_.ffn, hidden, true);
    layers_.register_layer_norm(layer + ".output.LayerNorm", hidden);
  }

  /// The head's own bias comes before its modules; decoder.bias is the same parameter.
  void register_heads() {
    const std::int64_t hidden = shape_.hidden;
    const std::string head = roberta() ? "lm_head" : "cls.predictions";
    layers_.register_parameter(head + ".bias", {shape_.vocab});
    const std::string transform = roberta() ? head : head + ".transform";
    layers_.register_linear(transform + ".dense", hidden, hidden, true);
    layers_.register_layer_norm(transform + (roberta() ? ".layer_norm" : ".LayerNorm"), hidden);
    if (!config_.tied) {
      layers_.register_parameter(head + ".decoder.weight", {shape_.vocab, hidden});
    }
    if (config_.task == BertTask::PreTraining) {
      layers_.register_linear("cls.seq_relationship", hidden, 2, true);
    }
  }

  // --- execution

  void run() override {
    switch (config_.task) {
      case BertTask::None:
        assembler_.enter("", class_name("Model"));
        assembler_.exit(run_pooler(run_encoder()));
        return;
      case BertTask::MaskedLm:
        run_masked_lm();
        return;
      case BertTask::PreTraining:
        run_pretraining();
        return;
    }
  }

  void run_masked_lm() {
    assembler_.enter("", class_name("ForMaskedLM"));
    assembler_.enter(encoder_, class_name("Model"));
    Value x = assembler_.exit(run_encoder());
    if (roberta()) {
      x = run_roberta_head(x);
    } else {
      assembler_.enter("cls", "BertOnlyMLMHead", {x});
      x = assembler_.exit(run_bert_predictions(x));
    }
    assembler_.exit(layers_.loss(shape_.vocab, x));
  }

  /// The loss is the sum of those of both heads.
  void run_pretraining() {
    assembler_.enter("", class_name("ForPreTraining"));
    assembler_.enter(encoder_, class_name("Model"));
    const Value sequence = run_encoder();
    const Value pooled = assembler_.exit(run_pooler(sequence));
    assembler_.enter("cls", "BertPreTrainingHeads", {sequence, pooled});
    const Value words = run_bert_predictions(sequence);
    const Value next =
        assembler_.exit(layers_.linear("cls.seq_relationship", shape_.hidden, 2, pooled));
    const Value word_loss = layers_.loss(shape_.vocab, words);
    const Value next_loss = layers_.loss(2, next);
    assembler_.exit(layers_.add(1, word_loss, next_loss));
  }

  /// The embeddings are called by keyword, the encoder and each layer with the stream first.
  Value run_encoder() {
    Value x = run_embeddings(in_encoder("embeddings"));
    assembler_.enter(in_encoder("encoder"), class_name("Encoder"), {x});
    for (std::int64_t layer = 0; layer < shape_.layers; ++layer) x = run_layer(layer, x);
    return assembler_.exit(x);
  }

  Value run_embeddings(const std::string& path) {
    const std::int64_t hidden = shape_.hidden;
    assembler_.enter(path, class_name("Embeddings"));
    assembler_.register_buffer("position_ids", config_.position_rows, Dtype::I64);
    assembler_.register_buffer("token_type_ids", config_.position_rows, Dtype::I64);
    const Value words = layers_.embedding(path + ".word_embeddings", shape_.vocab, hidden);
    const Value types =
        layers_.embedding(path + ".token_type_embeddings", config_.token_types, hidden);
    Value x = layers_.add(hidden, words, types);
    const Value positions =
        layers_.embedding(path + ".position_embeddings", config_.position_rows, hidden);
    x = layers_.add(hidden, x, positions);
    x = layers_.layer_norm(path + ".LayerNorm", hidden, x);
    return assembler_.exit(layers_.dropout(path + ".dropout", hidden, x));
  }

  Value run_layer(std::int64_t layer, Value x) {
    const std::string path = in_encoder(format("encoder.layer.{}", layer));
    assembler_.enter(path, class_name("Layer"), {x}, static_cast<int>(layer));
    assembler_.enter(path + ".attention", class_name("Attention"), {x});
    Value y = run_self_attention(path + ".attention.self", x);
    x = assembler_.exit(
        run_output(path + ".attention.output", class_name("SelfOutput"), shape_.hidden, y, x));
    assembler_.enter(path + ".intermediate", class_name("Intermediate"), {x});
    y = layers_.linear(path + ".intermediate.dense", shape_.hidden, shape_.ffn, x);
    y = assembler_.exit(layers_.activation(path + ".intermediate.intermediate_act_fn",
                                           config_.activation_class, shape_.ffn, y));
    return assembler_.exit(run_output(path + ".output", class_name("Output"), shape_.ffn, y, x));
  }

  /// The dropout of the attention scores is part of the Attention operator, wherever its module is.
  Value run_self_attention(const std::string& path, Value x) {
    const std::int64_t hidden = shape_.hidden;
    assembler_.enter(path, class_name("SelfAttention"), {x});
    const Value q = layers_.linear(path + ".query", hidden, hidden, x);
    const Value k = layers_.linear(path + ".key", hidden, hidden, x);
    const Value v = layers_.linear(path + ".value", hidden, hidden, x);
    const Value y = assembler_.attend({.heads = shape_.heads,
                                       .kv_heads = shape_.heads,
                                       .head_dim = shape_.head_dim,
                                       .value_dim = shape_.head_dim,
                                       .causal = false,
                                       .fp32_softmax = false},
                                      {q, k, v});
    assembler_.enter(path + ".dropout", "Dropout", {y});
    assembler_.exit(y);
    return assembler_.exit(y);
  }

  /// LayerNorm(dropout(dense(y)) + x)
  Value run_output(const std::string& path, const std::string& class_of_output, std::int64_t width,
                   Value y, Value x) {
    assembler_.enter(path, class_of_output, {y, x});
    y = layers_.linear(path + ".dense", width, shape_.hidden, y);
    y = layers_.dropout(path + ".dropout", shape_.hidden, y);
    y = layers_.add(shape_.hidden, y, x);
    return assembler_.exit(layers_.layer_norm(path + ".LayerNorm", shape_.hidden, y));
  }

  Value run_pooler(Value x) {
    const std::string path = in_encoder("pooler");
    assembler_.enter(path, class_name("Pooler"), {x});
    x = layers_.linear(path + ".dense", shape_.hidden, shape_.hidden, x);
    return assembler_.exit(layers_.activation(path + ".activation", "Tanh", shape_.hidden, x));
  }

  Value run_bert_predictions(Value x) {
    const std::string path = "cls.predictions";
    const std::string transform = path + ".transform";
    assembler_.enter(path, "BertLMPredictionHead", {x});
    assembler_.own(path + ".bias");
    assembler_.enter(transform, "BertPredictionHeadTransform", {x});
    x = layers_.linear(transform + ".dense", shape_.hidden, shape_.hidden, x);
    x = layers_.activation(transform + ".transform_act_fn", config_.activation_class, shape_.hidden,
                           x);
    x = assembler_.exit(layers_.layer_norm(transform + ".LayerNorm", shape_.hidden, x));
    return assembler_.exit(run_decoder(path, x));
  }

  /// Its gelu is a function, not a module.
  Value run_roberta_head(Value x) {
    const std::string path = "lm_head";
    assembler_.enter(path, "RobertaLMHead", {x});
    assembler_.own(path + ".bias");
    x = layers_.linear(path + ".dense", shape_.hidden, shape_.hidden, x);
    x = assembler_.activate("GELU", shape_.hidden, x);
    x = layers_.layer_norm(path + ".layer_norm", shape_.hidden, x);
    return assembler_.exit(run_decoder(path, x));
  }

  Value run_decoder(const std::string& head, Value x) {
    const std::string path = head + ".decoder";
    const std::string weight =
        config_.tied ? in_encoder("embeddings.word_embeddings.weight") : path + ".weight";
    assembler_.enter(path, "Linear", {x});
    assembler_.own(weight);
    assembler_.own(head + ".bias");
    return assembler_.exit(assembler_.compute(OperatorKind::Linear, shape_.hidden, shape_.vocab,
                                              {x}, {head + ".bias", weight}));
  }

  BertConfig config_;
  std::string encoder_;  ///< path of the encoder; "" if it is the root
};

}  // namespace

Model build_bert(Config& config, const std::string& model_type) {
  const BertConfig bert = read_bert_config(config, model_type == "roberta" ? kRoberta : kBert);
  Model model = BertLayout(bert).build();
  // The bias of the head is owned twice in any case.
  model.tied_embeddings = bert.task != BertTask::None && bert.tied;
  return model;
}

}  // namespace zerosim::internal
