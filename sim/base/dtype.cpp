#include "sim/base/dtype.h"

#include "sim/base/error.h"

namespace zerosim {
namespace {

struct DtypeRow {
  Dtype dtype;
  int bytes;
  std::string_view name;
};

constexpr DtypeRow kDtypes[] = {
    {Dtype::Bf16, 2, "bf16"}, {Dtype::F16, 2, "f16"}, {Dtype::F32, 4, "f32"},
    {Dtype::F64, 8, "f64"},   {Dtype::U8, 1, "u8"},   {Dtype::I32, 4, "i32"},
    {Dtype::I64, 8, "i64"},
};

const DtypeRow& row_of(Dtype dtype) {
  for (const DtypeRow& row : kDtypes) {
    if (row.dtype == dtype) return row;
  }
  ZS_CHECK(false, "element type without a row in kDtypes");
}

}  // namespace

int dtype_bytes(Dtype dtype) {
  return row_of(dtype).bytes;
}

std::string_view to_string(Dtype dtype) {
  return row_of(dtype).name;
}

}  // namespace zerosim
