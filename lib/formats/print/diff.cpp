#include <algorithm>
#include <map>

#include "base/json_text.h"
#include "base/text.h"
#include "base/units.h"
#include "config/report/diagnostics.h"
#include "config/schema/fields.h"
#include "config/schema/list_values.h"
#include "config/schema/values.h"
#include "config/schema/words.h"
#include "formats/print/print.h"
#include "formats/print/text.h"

namespace trainctl {

namespace {

/// A visitor that lists every value with its path.
struct Flattener {
  std::vector<std::pair<std::string, std::string>>& out;

  template <class Value>
  void operator()(const std::string& path, const Value& value, const Field&) {
    out.emplace_back(path, write_value(value));
  }
  template <class Value>
  void operator()(const std::string& path, const std::optional<Value>& value, const Field&) {
    out.emplace_back(path, value ? write_value(*value) : std::string(not_given));
  }
  void operator()(const std::string& path, std::nullopt_t, const Field&) {
    out.emplace_back(path, not_given);
  }
  template <ListedSection Item>
  void operator()(const std::string& path, const std::vector<Item>& items, const Field&) {
    for (std::size_t i = 0; i < items.size(); ++i) {
      visit_values(items[i], *this, formatted("{}.{}.", path, i));
    }
  }
};

}  // namespace

std::vector<std::pair<std::string, std::string>> config_values(const Config& config) {
  std::vector<std::pair<std::string, std::string>> out;
  visit_values(config, Flattener{out});
  return out;
}

namespace {

struct Value {
  std::string name;
  std::string text;
};
struct Section {
  std::string name;
  std::vector<Value> values;
};
struct Change {
  std::string name;
  std::string before;  // "none" if there was no value
  std::string after;
};

std::string number(std::int64_t value) { return std::to_string(value); }

Section mesh_values(const Plan& plan) {
  Section section{"mesh", {}};
  section.values.push_back({"world_size", number(plan.mesh.world_size())});
  section.values.push_back({"mode", std::string(word_of(plan.mode))});
  section.values.push_back({"order", order_text(plan.mesh.order)});
  for (const auto& [name, axis] : public_axes()) {
    section.values.push_back({std::string(name), number(plan.mesh.size(axis))});
  }
  return section;
}

Section stage_values(const Plan& plan) {
  Section section{"stages", {}};
  for (int stage = 0; stage < plan.map.stages; ++stage) {
    std::string text;
    for (int chunk = 0; chunk < plan.map.chunks; ++chunk) {
      text += (chunk == 0 ? "" : " | ") + held_text(plan.map.at(stage, chunk), plan.model.layers);
    }
    section.values.push_back({"stage " + number(stage), text});
  }
  return section;
}

Section schedule_values(const Plan& plan) {
  Section section{"schedule", {}};
  section.values = {{"name", plan.schedule},
                    {"micro_batch_size", number(plan.micro_batch_size)},
                    {"microbatches", number(plan.microbatches)},
                    {"microbatch_group_size_per_vp_stage", number(plan.group_size)},
                    {"tokens_per_step", number(plan.tokens_per_step())},
                    {"first batch", number(plan.ramp.front().batch)},
                    {"bubble_fraction", percent(plan.bubble_fraction)}};
  for (int stage = 0; stage < plan.map.stages; ++stage) {
    const StagePlan& held = plan.stages[static_cast<std::size_t>(stage)];
    section.values.push_back({"stage " + number(stage),
                              number(held.warmup) + " warm-up, " + number(held.slots) + " slots"});
  }
  return section;
}

Section time_values(const Plan& plan) {
  Section section{"time", {}};
  if (!plan.time) return section;
  section.values = {{"step", format_seconds(plan.time->step())},
                    {"forward, backward", format_seconds(plan.time->forward_backward)},
                    {"exposed", format_seconds(plan.time->exposed)},
                    {"overlapped", format_seconds(plan.time->hidden)},
                    {"optimizer", format_seconds(plan.time->optimizer)},
                    {"bubble_fraction", percent(plan.time->bubble_fraction)}};
  return section;
}

Section bucket_values(const Plan& plan) {
  Section section{"buckets", {}};
  for (int stage = 0; stage < plan.map.stages; ++stage) {
    const FlatBuffer& flat = plan.stages[static_cast<std::size_t>(stage)].flat;
    std::int64_t longest = 0;
    for (const Bucket& bucket : flat.buckets) longest = std::max(longest, bucket.length);
    section.values.push_back(
        {"stage " + number(stage), number(static_cast<std::int64_t>(flat.buckets.size())) +
                                       " of at most " + format_grouped(longest) + " elements, " +
                                       format_grouped(flat.length) + " in all"});
  }
  return section;
}

Section memory_values(const Plan& plan) {
  Section section{"memory", {}};
  for (int stage = 0; stage < plan.map.stages; ++stage) {
    const MemoryEstimate& memory = plan.stages[static_cast<std::size_t>(stage)].memory;
    const std::string prefix = "stage " + number(stage) + " ";
    for (const auto& [name, bytes] : memory_rows(memory)) {
      section.values.push_back({prefix + std::string(name), format_bytes(bytes)});
    }
    section.values.push_back({prefix + "total", format_bytes(memory.total())});
  }
  return section;
}

Section communication_values(const Plan& plan) {
  Section section{"communication", {}};
  for (int stage = 0; stage < plan.map.stages; ++stage) {
    for (const CollectiveUse& use : plan.stages[static_cast<std::size_t>(stage)].communication) {
      section.values.push_back(
          {"stage " + number(stage) + " " + use.name() + " over " + name_of(use.group),
           grouped_count(use.count, "call") + ", " + format_bytes(use.bytes)});
    }
  }
  return section;
}

std::vector<Section> sections_of(const PrintInput& input) {
  Section config{"config", {}};
  for (const auto& [path, value] : config_values(*input.config)) {
    config.values.push_back({path, value});
  }
  return {config,
          mesh_values(input.plan),
          stage_values(input.plan),
          schedule_values(input.plan),
          bucket_values(input.plan),
          memory_values(input.plan),
          communication_values(input.plan),
          time_values(input.plan),
          {"hash", {{"plan", hex_text(input.plan.hash)}}}};
}

/// The changes in the order of `before`, then the values that only `after` has.
std::vector<Change> changes_of(const Section& before, const Section& after) {
  std::map<std::string, std::string> left;
  for (const Value& value : after.values) left[value.name] = value.text;
  std::vector<Change> changes;
  for (const Value& value : before.values) {
    const auto found = left.find(value.name);
    if (found == left.end()) {
      changes.push_back({value.name, value.text, "none"});
      continue;
    }
    if (found->second != value.text) changes.push_back({value.name, value.text, found->second});
    left.erase(found);
  }
  for (const Value& value : after.values) {
    if (left.contains(value.name)) changes.push_back({value.name, "none", value.text});
  }
  return changes;
}

}  // namespace

std::string print_diff_table(const PrintInput& before, const PrintInput& after) {
  const std::vector<Section> old_sections = sections_of(before);
  const std::vector<Section> new_sections = sections_of(after);
  std::string text;
  for (std::size_t i = 0; i < old_sections.size(); ++i) {
    const std::vector<Change> changes = changes_of(old_sections[i], new_sections[i]);
    if (changes.empty()) continue;
    text += (text.empty() ? "" : "\n") + old_sections[i].name + "\n";
    std::size_t width = 0;
    for (const Change& change : changes) width = std::max(width, change.name.size());
    for (const Change& change : changes) {
      text +=
          "  " + padded(change.name, width) + "  " + change.before + " -> " + change.after + "\n";
    }
  }
  return text.empty() ? "no difference\n" : text;
}

std::string print_diff_json(const PrintInput& before, const PrintInput& after) {
  const std::vector<Section> old_sections = sections_of(before);
  const std::vector<Section> new_sections = sections_of(after);
  JsonText json;
  json.open_object();
  json.member("format_version", 2);
  json.member("equal", before.plan.hash == after.plan.hash && *before.config == *after.config);
  for (std::size_t i = 0; i < old_sections.size(); ++i) {
    json.key(old_sections[i].name).open_array();
    for (const Change& change : changes_of(old_sections[i], new_sections[i])) {
      json.open_object(JsonText::Form::one_line);
      json.member("name", change.name);
      json.member("before", change.before);
      json.member("after", change.after);
      json.close();
    }
    json.close();
  }
  if (before.diagnostics != nullptr && after.diagnostics != nullptr) {
    std::vector<std::string> rows = json_rows(*before.diagnostics);
    for (std::string& row : json_rows(*after.diagnostics)) rows.push_back(std::move(row));
    json.json_member("diagnostics", rows);
  }
  json.close();
  return json.take();
}

}  // namespace trainctl
