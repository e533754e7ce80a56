// RoPE in a config.json, in both spellings: rope_theta with rope_scaling, and rope_parameters.
#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "config/upstream/hugging_face_reader.h"

namespace trainctl {
namespace {

/// One value that two places may give.
struct Twice {
  std::string key;
  HuggingFaceJson value;
};

/// The rope settings of either spelling; both may be there if they say the same.
Twice rope_setting(HuggingFaceReader& reader, const std::string& name, const std::string& old_key,
                   const HuggingFaceJson& old_value) {
  const HuggingFaceJson& parameters = reader.at("rope_parameters");
  const bool is_new = parameters.is_object() && parameters.contains(name);
  if (!is_new) return {old_key, old_value};
  const std::string key = "rope_parameters." + name;
  if (!old_value.is_null() && old_value != parameters[name]) {
    reader.problem(key, parameters[name], old_key + " says otherwise: " + shown(old_value.dump()));
  }
  return {key, parameters[name]};
}

/// The keys of rope_scaling as the file gives them, one after the other.
class ScalingReader {
 public:
  ScalingReader(HuggingFaceReader& reader, HuggingFaceJson scaling)
      : reader_(reader), scaling_(std::move(scaling)) {}

  Twice find(const std::string& name) {
    const HuggingFaceJson old = scaling_.contains(name) ? scaling_[name] : HuggingFaceJson();
    return rope_setting(reader_, name, "rope_scaling." + name, old);
  }
  /// A number that must be there.
  void number(const char* name) {
    const Twice given = find(name);
    if (!given.value.is_number())
      return reader_.problem(given.key, given.value, "expected a number");
    add(name, write_value(given.value.get<double>()));
  }
  /// A number that may be missing or null.
  void number_if_given(const char* name) {
    if (!find(name).value.is_null()) number(name);
  }
  void flag_if_given(const char* name) {
    const Twice given = find(name);
    if (given.value.is_null()) return;
    if (!given.value.is_boolean()) {
      return reader_.problem(given.key, given.value, "expected true or false");
    }
    add(name, given.value.get<bool>() ? "true" : "false");
  }
  void numbers(const char* name) {
    const Twice given = find(name);
    std::string text;
    bool right = given.value.is_array() && !given.value.empty();
    for (const HuggingFaceJson& one : given.value) {
      right = right && one.is_number();
      if (right) text += (text.empty() ? "" : ", ") + write_value(one.get<double>());
    }
    if (!right) return reader_.problem(given.key, given.value, "expected a list of numbers");
    add(name, "[" + text + "]");
  }
  /// The original context: at the top, among the settings, or the longest one itself. Added as
  /// `ours`.
  void original(std::int64_t positions, const char* ours = "original_max_position_embeddings") {
    const char* name = "original_max_position_embeddings";
    const HuggingFaceJson& top = reader_.at(name);
    HuggingFaceJson value = top.is_null() ? find(name).value : top;
    if (value.is_null()) value = static_cast<std::uint64_t>(positions);
    if (!value.is_number_unsigned()) return reader_.problem(name, value, "expected a whole number");
    add(ours, std::to_string(value.get<std::uint64_t>()));
  }
  void add(const std::string& name, const std::string& value) {
    text_ += (text_.empty() ? "" : ", ") + name + ": " + value;
  }
  std::string text() const { return "{" + text_ + "}"; }

 private:
  HuggingFaceReader& reader_;
  HuggingFaceJson scaling_;
  std::string text_;
};

/// `rope_type` decides; older files call it `type`.
HuggingFaceJson old_rope_type(const HuggingFaceJson& scaling) {
  for (const char* name : {"rope_type", "type"}) {
    if (scaling.contains(name)) return scaling[name];
  }
  return {};
}

/// Adds the keys of a type that changes frequencies; false: it is not built.
bool read_type(ScalingReader& scaling, const HuggingFaceJson& type, std::int64_t positions) {
  if (type == "llama3") {
    for (const char* name : {"factor", "low_freq_factor", "high_freq_factor"}) scaling.number(name);
    scaling.original(positions);
  } else if (type == "linear") {
    scaling.add("type", "linear");
    scaling.number("factor");
  } else if (type == "yarn") {
    scaling.add("type", "yarn");
    scaling.number("factor");
    for (const char* name :
         {"attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim"}) {
      scaling.number_if_given(name);
    }
    scaling.flag_if_given("truncate");
    scaling.original(positions);
  } else if (type == "longrope" || type == "su") {
    scaling.add("type", "longrope");
    scaling.numbers("short_factor");
    scaling.numbers("long_factor");
    scaling.number_if_given("attention_factor");
    scaling.original(positions);
  } else if (type == "dynamic") {
    // Up to max_position_embeddings nothing changes, and longer sequences are refused.
    scaling.add("type", scaling.find("alpha").value.is_null() ? "none" : "alpha");
    scaling.number_if_given("alpha");
  } else {
    return false;
  }
  return true;
}

/// What of RoPE may differ between layers with a window and the others, as values of our keys.
struct RopeKeys {
  std::string base, scaling;
  bool operator==(const RopeKeys&) const = default;
};

/// The settings in the older spelling.
HuggingFaceJson older_settings(const HuggingFaceReader& reader) {
  const HuggingFaceJson& given = reader.at("rope_scaling");
  return given.is_object() ? given : HuggingFaceJson::object();
}

/// `usual`: our value of rope_scaling where the file has no settings; "" is none.
RopeKeys read_keys(HuggingFaceReader& reader, double usual_theta, std::string_view usual,
                   std::int64_t positions) {
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const HuggingFaceJson& value = reader.at(key);
    if (!value.is_null() && !value.is_object()) {
      reader.problem(key, "expected an object or null");
      return {};
    }
  }
  const HuggingFaceJson scaling = older_settings(reader);
  const Twice theta = rope_setting(reader, "rope_theta", "rope_theta", reader.at("rope_theta"));
  RopeKeys keys;
  keys.base = write_value(reader.number(theta.key, theta.value, usual_theta));
  keys.scaling = "{factor: 1}";
  const Twice kind =
      rope_setting(reader, "rope_type", "rope_scaling.rope_type", old_rope_type(scaling));
  if (kind.value == "default") return keys;
  if (kind.value.is_null() && scaling.empty()) {
    if (!usual.empty()) keys.scaling = usual;
    return keys;
  }
  if (kind.value.is_null()) {
    reader.problem("rope_scaling", "it needs a rope_type");
    return keys;
  }
  ScalingReader parts(reader, scaling);
  if (read_type(parts, kind.value, positions)) {
    keys.scaling = parts.text();
  } else {
    reader.problem(kind.key, kind.value,
                   "RoPE is built as default, linear, dynamic, llama3, yarn and longrope");
  }
  return keys;
}

/// The file as it says RoPE for layers of one type: with full_attention or sliding_attention.
HuggingFaceJson for_layers(const HuggingFaceReader& reader, const HuggingFaceFamily& family,
                           const char* layers) {
  HuggingFaceJson root = reader.root();
  const HuggingFaceJson& parameters = reader.at("rope_parameters");
  if (parameters.is_object() && parameters.contains(layers)) {
    root["rope_parameters"] = parameters[layers];
    return root;
  }
  if (layers != std::string_view("sliding_attention")) return root;
  // Older files: a base of its own, and scaling of the others only.
  root.erase("rope_parameters");
  root.erase("rope_scaling");
  if (family.local_theta > 0) root.erase("rope_theta");
  if (reader.has("rope_local_base_freq")) root["rope_theta"] = reader.at("rope_local_base_freq");
  return root;
}

void read_turned_part(HuggingFaceReader& reader, const HuggingFaceFamily& family) {
  const Twice partial = rope_setting(reader, "partial_rotary_factor", "partial_rotary_factor",
                                     reader.at("partial_rotary_factor"));
  const double part = reader.number(partial.key, partial.value, family.partial_rotary_factor);
  if (part != 1 && !family.partial_rotary) {
    reader.problem(partial.key, partial.value, "RoPE turns whole heads in this family");
  } else if (part != 1) {
    reader.give("rotary_percent", part);
  }
  if (family.interleaved) reader.give("rotary_interleaved", true);
}

/// Queries times 1 + beta ln(1 + floor(position / original context)).
void read_temperature(HuggingFaceReader& reader, const HuggingFaceFamily& family,
                      std::int64_t positions) {
  if (family.temperature.empty()) return;
  const HuggingFaceJson older = older_settings(reader);
  ScalingReader settings(reader, older);
  const Twice beta = settings.find("llama_4_scaling_beta");
  if (beta.value.is_null() && older.empty() && !reader.at("rope_parameters").is_object()) {
    return reader.give_text("attention_temperature", std::string(family.temperature));
  }
  if (!beta.value.is_number()) {
    return reader.problem(beta.key, beta.value, "expected a number, 0 for none");
  }
  if (beta.value == 0) return;
  settings.add("beta", write_value(beta.value.get<double>()));
  settings.original(positions, "floor");
  reader.give_text("attention_temperature", settings.text());
}

/// layer_rope_theta, empty where the file has none.
std::vector<double> listed_thetas(HuggingFaceReader& reader, std::int64_t layers) {
  const HuggingFaceJson& list = reader.at("layer_rope_theta");
  if (list.is_null()) return {};
  const auto is_base = [](const HuggingFaceJson& one) {
    return one.is_number() && one.get<double>() >= 0;
  };
  if (list.is_array() && std::ssize(list) == layers && std::ranges::all_of(list, is_base)) {
    return list.get<std::vector<double>>();
  }
  reader.problem("layer_rope_theta", "expected a list of " + std::to_string(layers) +
                                         " numbers, the base of each layer and 0 of one without "
                                         "RoPE");
  return {};
}

/// The bases of layers, the first of which is the model's.
HuggingFaceRopes ropes_of_layers(HuggingFaceReader& reader, std::int64_t layers) {
  HuggingFaceRopes ropes{.thetas = listed_thetas(reader, layers)};
  for (const double theta : ropes.thetas) {
    if (ropes.theta == 0) ropes.theta = theta;
  }
  return ropes;
}

}  // namespace

HuggingFaceRopes read_hugging_face_rope(HuggingFaceReader& reader, const HuggingFaceFamily& family,
                                        std::int64_t layers, std::int64_t positions) {
  read_turned_part(reader, family);
  read_temperature(reader, family, positions);
  const HuggingFaceJson& parameters = reader.at("rope_parameters");
  const bool by_type = parameters.is_object() && (parameters.contains("full_attention") ||
                                                  parameters.contains("sliding_attention"));
  if (by_type && !family.scales_full_rope_only) {
    reader.problem("rope_parameters", "layers of this family have the same RoPE");
    return {};
  }
  const HuggingFaceJson full = for_layers(reader, family, "full_attention");
  HuggingFaceReader of_full = reader.with(full);
  const RopeKeys usual = read_keys(of_full, family.rope_theta, family.rope_scaling, positions);
  HuggingFaceRopes ropes;
  if (family.theta_of_each_layer) ropes = ropes_of_layers(reader, layers);
  reader.give_text("rotary_base", ropes.theta > 0 ? write_value(ropes.theta) : usual.base);
  reader.give_text("rope_scaling", usual.scaling);
  if (!family.scales_full_rope_only) return ropes;
  const HuggingFaceJson sliding = for_layers(reader, family, "sliding_attention");
  HuggingFaceReader of_sliding = reader.with(sliding);
  const RopeKeys local = read_keys(
      of_sliding, family.local_theta > 0 ? family.local_theta : family.rope_theta, "", positions);
  if (local != usual) {
    ropes.local = ", rotary_base: " + local.base + ", rope_scaling: " + local.scaling;
  }
  return ropes;
}

}  // namespace trainctl
