// What one layer is, without the mesh: all that the declarations of this room read of the model.
#pragma once

#include <cstdint>
#include <variant>

#include "plan/tables/model.h"

namespace trainctl {

struct AttentionForm {
  std::int64_t q = 0;   // features of the queries
  std::int64_t kv = 0;  // features of the keys, and of the values
};

struct MlpForm {
  std::int64_t ffn = 0;
  bool gated = false;  // silu(gate) * up instead of gelu(up)
};

struct ExpertsForm {
  std::int64_t experts = 1;
  std::int64_t topk = 1;        // of each token
  std::int64_t expert_ffn = 0;  // width inside one expert
  std::int64_t shared_ffn = 0;  // width of the shared experts; 0: none
  bool gated = false;           // as in MlpForm
  bool shared_gate = false;     // the output of shared experts is multiplied by a sigmoid
};

struct LayerForm {
  std::int64_t hidden = 0;
  std::int64_t keys = 0;  // tokens of a sequence
  AttentionForm attention{};
  std::variant<MlpForm, ExpertsForm> feed_forward{};

  bool has_experts() const { return std::holds_alternative<ExpertsForm>(feed_forward); }
};

/// Of layer `layer` (from 0) of the model.
LayerForm layer_form(const ModelShape& model, std::int64_t layer);

}  // namespace trainctl
