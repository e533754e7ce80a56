#include "config/explain/reference.h"

#include <optional>
#include <string_view>
#include <type_traits>
#include <vector>

#include "config/read/read.h"
#include "config/schema/describe.h"
#include "config/schema/fields.h"
#include "config/schema/list_values.h"
#include "config/schema/presets.h"
#include "config/schema/values.h"

namespace trainctl {
namespace {

using detail::code;

/// "**required**, or tokens"
std::string required_text(const Field& field) {
  std::string text = "**required**";
  for (std::string keys : split_words(field.given_by)) {
    const std::size_t plus = keys.find('+');
    if (plus != std::string::npos) keys.replace(plus, 1, " and ");
    text += ", or " + keys;
  }
  return text;
}

/// The visitor that writes one section's table; nested sections follow it.
class TableWriter {
 public:
  explicit TableWriter(std::string path) : path_(std::move(path)) {}

  template <class Value>
  void operator()(const Value& value, const Field& field) {
    row(field, type_of<Value>(field), field.is_required ? required_text(field) : default_of(value),
        range_of<Value>(field));
  }
  template <class Value>
  void operator()(const std::optional<Value>&, const Field& field) {
    row(field, field.is_internal ? "null" : type_of<Value>(field), std::string(field.unset_note),
        range_of<Value>(field));
  }
  void operator()(const std::vector<DataSource>&, const Field& field) {
    row(field, "string or list", "**required**", "at least one path");
    const DataSource source;
    nested(source, path_ + "." + std::string(field.key) + "[]", "One of several data sources");
  }
  void operator()(const std::vector<LayerEntry>&, const Field& field) {
    row(field, "list of maps", code("[]"), "up to 64 kinds");
    nested(LayerEntry{}, path_ + "." + std::string(field.key) + "[]", "One kind of layers");
  }
  template <class Section>
  void section(const std::optional<Section>&, const Field& field) {
    row(field, "map", std::string(field.unset_note), "");
  }
  template <class Section>
  void section(const Section& value, const Field& field) {
    const std::string path = (path_.empty() ? "" : path_ + ".") + std::string(field.key);
    if (!path_.empty()) row(field, "map", "", "");
    nested(value, path, field.meaning);
  }

  std::string text() const {
    if (rows_.empty()) return nested_;
    return "| key | type | default | allowed | meaning |\n|---|---|---|---|---|\n" + rows_ + "\n" +
           nested_;
  }

 private:
  template <class Section>
  void nested(const Section& value, const std::string& path, std::string_view meaning) {
    TableWriter inner(path);
    fields(inner, value);
    const std::string level = path_.empty() ? "## " : "### ";
    nested_ += level + path + "\n\n" + std::string(meaning) + ".\n\n" + inner.text();
  }

  void row(const Field& field, const std::string& type, const std::string& fallback,
           const std::string& range) {
    std::string meaning = meaning_of(path_ + "." + std::string(field.key), field);
    for (std::size_t at = 0; (at = meaning.find('|', at)) != std::string::npos; at += 2) {
      meaning.insert(at, "\\");
    }
    rows_ += "| " + code(field.key) + " | " + type + " | " + fallback + " | " + range + " | " +
             meaning + " |\n";
  }

  std::string path_;
  std::string rows_;
  std::string nested_;
};

std::string upstream_section() {
  return "## Upstream names\n\n"
         "Every key in these lists is also accepted under its upstream name: in `parallel`, and in "
         "the section that our key belongs to (MoEConfig's keys in `moe`, those of the recompute "
         "config in `recompute`). MindFormers' sections `parallel_config`, `recompute_config` and "
         "`moe_config` are accepted with their keys; `moe_config` has its router's own definitions "
         "and "
         "defaults ([experts.md](experts.md#mindformers-router)). Two spellings of one key with "
         "different "
         "values are an error; `--set` overrides the file in any spelling. The status says what "
         "`train` does with the key; `validate` refuses what `train` refuses, and `plan` shows it "
         "with a warning.\n\n" +
         upstream_markdown();
}

}  // namespace

std::string reference_markdown() {
  TableWriter writer("");
  const Config config;
  fields(writer, config);
  std::string presets;
  for (const std::string& name : preset_names()) {
    presets += (presets.empty() ? "" : ", ") + code(name);
  }
  return "# Configuration reference\n\n"
         "Generated from the program's field lists by `trainctl schema --format markdown`. A "
         "configuration is one YAML file of at most 1 MiB; each section below is a map. The five "
         "required sizes of the model may come from a preset or from a model directory.\n\n"
         "Presets: " +
         presets + ".\n\n" + writer.text() + upstream_section();
}

}  // namespace trainctl
