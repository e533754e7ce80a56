// Unicode normal forms, as the "normalizer" of a tokenizer.json asks for them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/hf/json_value.h"

namespace trainctl::hf {

class Normalizer {
 public:
  /// null, NFC, NFD, NFKC, NFKD, or a Sequence of those. Throws Error{bad_data} for others.
  explicit Normalizer(const JsonValue& normalizer);

  /// `text` normalised: in `storage`, or `text` itself where nothing changes. `text` is valid
  /// UTF-8.
  std::string_view apply(std::string_view text, std::string& storage) const;

 private:
  struct Form {
    bool composes = false;       // NFC, NFKC
    bool is_compatible = false;  // NFKC, NFKD
  };
  void read(const JsonValue& normalizer, int depth);
  static void append(const Form& form, std::string_view text, std::string& out);
  static void append_normal(const Form& form, std::string_view text, std::string& out);

  std::vector<Form> forms_;
};

}  // namespace trainctl::hf
