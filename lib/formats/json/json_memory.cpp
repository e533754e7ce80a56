#include "formats/json/json_parts.h"
#include "formats/print/memory_models.h"
#include "formats/print/text.h"

namespace trainctl {

void write_memory(JsonText& json, const PrintInput& input) {
  const Plan& plan = input.plan;
  json.key("memory").open_array();
  for (int stage = 0; stage < plan.map.stages; ++stage) {
    const MemoryEstimate& memory = plan.stages[static_cast<std::size_t>(stage)].memory;
    json.open_object(JsonText::Form::one_line);
    json.member("stage", stage);
    for (const auto& [name, bytes] : memory_rows(memory)) json.member(name, bytes);
    json.member("total", memory.total());
    json.close();
  }
  json.close();
  const std::vector<MemoryModelRows> models = memory_models(input);
  if (models.empty()) return;
  json.key("memory_models").open_object();
  for (const MemoryModelRows& model : models) {
    json.key(model.name).open_object(JsonText::Form::one_line);
    json.member("about", model.about);
    for (const ModelNumber& number : model.numbers) json.member(number.name, number.value);
    json.close();
  }
  json.close();
}

}  // namespace trainctl
