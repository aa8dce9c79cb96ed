#include <string>

#include "sim/base/text.h"
#include "sim/strategy/deepspeed_reader.h"

namespace zerosim::internal {
namespace {

constexpr const char* kTrainBatch = "train_batch_size";
constexpr const char* kMicroBatch = "train_micro_batch_size_per_gpu";
constexpr const char* kGradAccum = "gradient_accumulation_steps";

/// One of the three batch sizes.
struct BatchField {
  const char* key = "";
  std::optional<std::int64_t> flag{};
  const char* flag_name = "";  ///< "": no flag says it
  std::optional<std::int64_t> value{};
  Origin origin = Origin::Derived;
};

/// What the file says of it; "auto" and, in mode auto, nothing are filled by the flag.
void read_field(DeepSpeedReading& reading, BatchField& field) {
  ConfigSection& root = reading.root;
  if (root.is_auto(field.key)) {
    if (!reading.fills_auto()) {
      root.fail(field.key,
                "found \"auto\", which DeepSpeed alone does not fill in, expected an integer",
                "auto_batch_unresolved");
    }
    field.value = field.flag;
    field.origin = Origin::Auto;
    return;
  }
  field.value = root.integer(field.key, 1);
  if (field.value) {
    field.origin = Origin::File;
    if (field.flag && *field.value != *field.flag) {
      root.fail(
          field.key,
          format("found {}, but the flag {} says {}", *field.value, field.flag_name, *field.flag),
          "flag_contradicts_file");
    }
  } else if (field.flag && reading.fills_absent()) {
    field.value = field.flag;
    field.origin = Origin::Flag;
  }
}

SourceLocation batch_place(const JsonDocument& document) {
  const JsonValue& root = document.root();
  for (const char* key : {kTrainBatch, kMicroBatch, kGradAccum}) {
    if (root.isMember(key)) return document.location(root[key]);
  }
  return document.location(root);
}

/// \throws ConfigError  if neither total nor micro batch is known, but some field is "auto".
void check_auto(DeepSpeedReading& reading, const BatchField& train, const BatchField& micro,
                const BatchField& accum) {
  if (train.value || micro.value) return;
  for (const BatchField* field : {&micro, &train, &accum}) {
    if (field->origin != Origin::Auto) continue;
    reading.root.fail(
        field->key,
        format("found \"auto\", but no flag gives the micro batch; expected a number or {}",
               kMicroBatchFlag),
        "auto_batch_unresolved");
  }
}

void list_field(DeepSpeedReading& reading, const BatchField& field, std::int64_t value) {
  const std::string reason = field.value ? format("from the flag {}", field.flag_name)
                                         : std::string("from the other batch sizes (A4.1)");
  reading.root.list(field.key, std::to_string(value), field.origin, {.reason = reason});
  if (!field.flag || *field.flag == value) return;  // a derived value may contradict a flag
  throw ConfigError(batch_place(reading.document),
                    format("{}: the file gives {}, but the flag {} says {}", field.key, value,
                           field.flag_name, *field.flag),
                    KnownCode("flag_contradicts_file").text());
}

/// Ranks that share a sequence (Ulysses): the data-parallel size is the rest of the world (A4.1).
std::int64_t read_sequence_parallel(DeepSpeedReading& reading) {
  const std::int64_t size = reading.root.integer_or("sequence_parallel_size", 1, 1);
  if (reading.world_size % size != 0) {
    reading.root.fail(
        "sequence_parallel_size",
        format("found {}, expected a divisor of the world size {}", size, reading.world_size),
        "out_of_range");
  }
  reading.strategy.sequence_parallel_size = size;
  const ModelShape& shape = reading.model.shape;
  for (const std::int64_t heads : {shape.heads, shape.kv_heads}) {
    if (size == 1 || heads % size == 0) continue;
    reading.root.warn("sequence_parallel_size", "heads_not_divisible",
                      format("{} ranks cannot share {} heads evenly", size, heads));
    break;
  }
  return size;
}

void read_managed_accumulation(DeepSpeedReading& reading) {
  constexpr const char* kKey = "managed_gradient_accumulation";
  if (reading.root.boolean_or(kKey, true)) return;
  const ZeroOptions& zero = reading.strategy.zero;
  if (zero.stage <= 1 && zero.overlap_comm) {
    reading.root.fail(
        kKey, format("found false, which stage {} refuses while overlap_comm is true", zero.stage),
        "managed_accumulation_off_with_overlap");
  }
}

}  // namespace

void read_batch(DeepSpeedReading& reading) {
  const TrainingFlags& flags = reading.flags;
  const std::int64_t data_parallel = reading.world_size / read_sequence_parallel(reading);
  BatchField train{kTrainBatch, std::nullopt, ""};
  BatchField micro{kMicroBatch, flags.micro_batch, kMicroBatchFlag};
  BatchField accum{kGradAccum, flags.grad_accum, kGradAccumFlag};
  for (BatchField* field : {&train, &micro, &accum}) read_field(reading, *field);
  check_auto(reading, train, micro, accum);
  const BatchTriple batch = resolve_batch(train.value, micro.value, accum.value, data_parallel,
                                          batch_place(reading.document));
  reading.strategy.train_batch = batch.train_batch;
  reading.strategy.micro_batch = batch.micro_batch;
  reading.strategy.grad_accum = batch.grad_accum;
  list_field(reading, train, batch.train_batch);
  list_field(reading, micro, batch.micro_batch);
  list_field(reading, accum, batch.grad_accum);
  read_managed_accumulation(reading);
}

}  // namespace zerosim::internal
