#include "config/read/read.h"
#include "config/report/snippet.h"
#include "config/schema/fields.h"
#include "config/schema/list_values.h"
#include "config/schema/values.h"

namespace trainctl {
namespace {

/// The visitor that writes a section as YAML.
class Writer {
 public:
  Writer(std::string& out, const SourceMap* sources, std::string path, std::string indent)
      : out_(out), sources_(sources), path_(std::move(path)), indent_(std::move(indent)) {}

  template <class Value>
  void operator()(const Value& value, const Field& field) {
    if constexpr (std::is_same_v<Value, std::int64_t>) {
      if (value == 0 && !field.given_by.empty()) return given_otherwise(field.key);
    }
    if constexpr (std::is_enum_v<Value>) {
      line(field.key, std::string(word_of(value)));
    } else {
      line(field.key, write_value(value));
    }
  }
  template <class Value>
  void operator()(const std::optional<Value>& value, const Field& field) {
    if (value) {
      (*this)(*value, field);
    } else if (!of_list_) {
      out_ += indent_ + "# " + std::string(field.key) + ": not given; " +
              std::string(field.unset_note) + "\n";
    }
  }
  template <ListedSection Item>
  void operator()(const std::vector<Item>& items, const Field& field) {
    out_ += indent_ + std::string(field.key) + ":" + (items.empty() ? " []" : "") + "\n";
    for (std::size_t i = 0; i < items.size(); ++i) {
      const std::string path = path_ + std::string(field.key) + "." + std::to_string(i) + ".";
      std::string item;
      Writer inner(item, sources_, path, indent_ + "    ");
      inner.of_list_ = true;
      fields(inner, items[i]);
      item[indent_.size() + 2] = '-';
      out_ += item;
    }
  }
  template <class Section>
  void section(const std::optional<Section>& value, const Field& field) {
    if (value) section(*value, field);
  }
  template <class Section>
  void section(const Section& value, const Field& field) {
    out_ += indent_ + std::string(field.key) + ":\n";
    Writer inner(out_, sources_, path_ + std::string(field.key) + ".", indent_ + "  ");
    fields(inner, value);
  }

 private:
  void line(std::string_view key, const std::string& value) {
    out_ += indent_ + std::string(key) + ": " + value;
    if (sources_ != nullptr) out_ += "  # " + origin(path_ + std::string(key));
    out_ += "\n";
  }

  /// A required value that other keys give.
  void given_otherwise(std::string_view key) {
    const std::string path = path_ + std::string(key);
    const bool known = sources_ != nullptr && sources_->places().contains(path);
    out_ += indent_ + "# " + std::string(key) + ": " +
            (known ? origin(path) : std::string("not given")) + "\n";
  }

  /// A value of a list item that is only a path has the item's place.
  std::string origin(std::string path) const {
    const auto& places = sources_->places();
    auto found = places.find(path);
    if (found == places.end() && path.ends_with(".path")) {
      found = places.find(path.substr(0, path.size() - 5));
    }
    return found == places.end() ? "default" : printable(found->second.to_string());
  }

  std::string& out_;
  const SourceMap* sources_;
  std::string path_;      // "" or ends in "."
  std::string indent_;    // of this section's keys
  bool of_list_ = false;  // one of several: keys that are not given go without saying
};

}  // namespace

Config config_as_given(const ReadResult& read) {
  Config config = read.config;
  if (!read.given) return config;
  config.train = read.given->train;
  config.lr_schedule = read.given->lr_schedule;
  return config;
}

std::string dump_config(const Config& config, const SourceMap* sources) {
  std::string out;
  Writer writer(out, sources, "", "");
  fields(writer, config);
  return out;
}

}  // namespace trainctl
