#include "formats/print/config_values.h"

#include "config/schema/fields.h"
#include "config/schema/list_values.h"
#include "config/schema/values.h"

namespace trainctl {

namespace {

/// The visitor that writes a section as paths and values.
class Flattener {
 public:
  using Values = std::vector<std::pair<std::string, std::string>>;
  Flattener(Values& out, std::string path) : out_(out), path_(std::move(path)) {}

  template <class Value>
  void operator()(const Value& value, const Field& field) {
    if constexpr (std::is_enum_v<Value>) {
      add(field, std::string(word_of(value)));
    } else {
      add(field, write_value(value));
    }
  }
  template <class Value>
  void operator()(const std::optional<Value>& value, const Field& field) {
    if (value) {
      (*this)(*value, field);
    } else {
      add(field, std::string(not_given));
    }
  }
  template <ListedSection Item>
  void operator()(const std::vector<Item>& items, const Field& field) {
    for (std::size_t i = 0; i < items.size(); ++i) {
      Flattener inner(out_, path_ + std::string(field.key) + "." + std::to_string(i) + ".");
      fields(inner, items[i]);
    }
  }
  template <class Section>
  void section(const std::optional<Section>& value, const Field& field) {
    if (value) return section(*value, field);
    add(field, std::string(not_given));
  }
  template <class Section>
  void section(const Section& value, const Field& field) {
    Flattener inner(out_, path_ + std::string(field.key) + ".");
    fields(inner, value);
  }

 private:
  void add(const Field& field, std::string value) {
    out_.emplace_back(path_ + std::string(field.key), std::move(value));
  }

  Values& out_;
  std::string path_;  // "" or ends in "."
};

}  // namespace

std::vector<std::pair<std::string, std::string>> config_values(const Config& config) {
  Flattener::Values out;
  Flattener flattener(out, "");
  fields(flattener, config);
  return out;
}

}  // namespace trainctl
