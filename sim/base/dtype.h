/// \file
/// Element types, with the words of the recorded schedules (data/deepspeed_golden).
#pragma once

#include <string_view>

namespace zerosim {

enum class Dtype { Bf16, F16, F32, F64, U8, I32, I64 };

/// Bytes of one element.
[[nodiscard]] int dtype_bytes(Dtype dtype);
/// "bf16", "f16", "f32", "f64", "u8", "i32", "i64".
[[nodiscard]] std::string_view to_string(Dtype dtype);

}  // namespace zerosim
