#include "formats/print/memory_models.h"

#include <array>

#include "base/units.h"
#include "plan/cost/korthikanti_memory.h"
#include "plan/cost/megatron_memory.h"

namespace trainctl {

namespace {

MemoryModelRows megatron_rows(const PrintInput& input, MegatronVersion version) {
  const MegatronMemoryInput sizes =
      megatron_memory_input(input.plan, input.config->model.make_vocab_size_divisible_by,
                            input.config->recompute, input.config->parallel.parallel_optimizer);
  const MegatronMemory memory = megatron_memory(sizes, version);
  const bool head = version == MegatronVersion::head;
  MemoryModelRows rows;
  rows.name = head ? "megatron" : "megatron-0.15";
  rows.about = "most loaded rank, 16-bit training with Adam";
  rows.numbers = {{"parameters", memory.parameters, false},
                  {"experts", memory.experts, false},
                  {"weights", memory.weights},
                  {"activations", memory.activations},
                  {"total", memory.total()}};
  return rows;
}

MemoryModelRows korthikanti_rows(const PrintInput& input) {
  const KorthikantiInput sizes = korthikanti_input(input.plan);
  const Technique technique = technique_of(input.plan, input.config->recompute);
  MemoryModelRows rows;
  rows.name = "korthikanti";
  rows.about = "activations of the first stage, " + std::string(name_of(technique));
  rows.numbers = {{"layer", korthikanti_layer(sizes, technique)},
                  {"total", korthikanti_total(sizes, technique)}};
  static constexpr std::array<const char*, all_techniques.size()> keys{
      "layer_none",
      "layer_tensor",
      "layer_tensor_sequence",
      "layer_tensor_selective",
      "layer_tensor_sequence_selective",
      "layer_full"};
  for (std::size_t i = 0; i < keys.size(); ++i) {
    rows.numbers.push_back({keys[i], korthikanti_layer(sizes, all_techniques[i])});
  }
  return rows;
}

}  // namespace

std::vector<MemoryModelRows> memory_models(const PrintInput& input) {
  std::vector<MemoryModelRows> models;
  if (input.config == nullptr) return models;
  const auto wants = [&input](MemoryModels model) {
    return input.memory_models == model || input.memory_models == MemoryModels::all;
  };
  if (wants(MemoryModels::megatron)) models.push_back(megatron_rows(input, MegatronVersion::head));
  if (wants(MemoryModels::megatron_0_15)) {
    models.push_back(megatron_rows(input, MegatronVersion::core_0_15_3));
  }
  if (wants(MemoryModels::korthikanti)) models.push_back(korthikanti_rows(input));
  return models;
}

std::string numbers_text(const MemoryModelRows& model) {
  std::string text;
  for (const ModelNumber& number : model.numbers) {
    if (number.name.starts_with("layer_")) continue;
    text += (text.empty() ? "" : ", ") + number.name + " " +
            (number.is_bytes ? format_bytes(static_cast<std::int64_t>(number.value))
                             : format_count(number.value));
  }
  return text;
}

}  // namespace trainctl
