#include "plan/model/attention.h"

namespace trainctl {

Products attention_products(const LayerForm& form, const LocalShape& local) {
  const std::int64_t rows = local.attention_rows;
  return {{BlockPart::qkv, rows, form.hidden, local.q},
          {BlockPart::qkv, rows, form.hidden, local.kv},
          {BlockPart::qkv, rows, form.hidden, local.kv},
          {BlockPart::attention, rows, 0, local.q, 0, form.keys},
          {BlockPart::projection, rows, local.q, form.hidden, local.stream_rows}};
}

}  // namespace trainctl
