// The description of one key: its name, meaning, and the rule for its value. The field lists are in
// fields.h.
#pragma once

#include <limits>
#include <string>
#include <string_view>

#include "config/schema/choices.h"

namespace trainctl {

/// The bounds of a number; for a string, of its length.
struct Bounds {
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
  bool above_least = false;  // least itself is excluded
  bool below_most = false;   // most itself is excluded

  constexpr bool has_least() const { return least > -std::numeric_limits<double>::infinity(); }
  constexpr bool has_most() const { return most < std::numeric_limits<double>::infinity(); }
  constexpr bool holds(double value) const {
    return (above_least ? value > least : value >= least) &&
           (below_most ? value < most : value <= most);
  }
  /// Text such as "1 to 64" or "at least 0 and below 1"; "" without limits.
  std::string to_string() const;
};

/// The units that may follow a number: k, M or B for counts; MB, GB, MiB or GiB for gib.
using Unit = OneOf<"none|count|gib">;

/// One key of a section. Built at compile time, so that visitors of fields contain no code for it:
/// field("steps", "...").from(1).required().
struct Field {
  std::string_view key;
  std::string_view meaning;       // one line for the reference page
  std::string_view unset_note;    // the value in effect if an optional value is not given
  std::string_view string_words;  // allowed words, "cpu|cuda"; a word that ends in ':' is a prefix
  Bounds range;
  bool is_required = false;
  // other keys of the section that determine a required value: "tokens|epochs", "a+b" for both
  std::string_view given_by = {};
  Unit unit = "none";
  std::string_view minutes_key = {};  // for a number of steps: the key for minutes instead
  bool is_internal = false;  // for an upstream key that users never set; only null is accepted

  consteval Field from(double least) const {
    Field copy = *this;
    copy.range.least = least;
    return copy;
  }
  consteval Field to(double most) const {
    Field copy = *this;
    copy.range.most = most;
    return copy;
  }
  consteval Field above(double least) const {
    Field copy = from(least);
    copy.range.above_least = true;
    return copy;
  }
  consteval Field below(double most) const {
    Field copy = to(most);
    copy.range.below_most = true;
    return copy;
  }
  consteval Field required() const {
    Field copy = *this;
    copy.is_required = true;
    return copy;
  }
  /// Required unless one of these sets of keys is given: "a|b+c".
  consteval Field required_unless(std::string_view keys) const {
    Field copy = required();
    copy.given_by = keys;
    return copy;
  }
  /// A number of steps, tokens or samples; accepts 10k for 10,000.
  consteval Field count(double least) const {
    Field copy = from(least);
    copy.unit = "count";
    return copy;
  }
  consteval Field count(double least, double most) const { return count(least).to(most); }
  /// A size of memory in GiB, or a number with its own unit.
  consteval Field gib() const {
    Field copy = above(0);
    copy.unit = "gib";
    return copy;
  }
  consteval Field or_minutes(std::string_view name) const {
    Field copy = *this;
    copy.minutes_key = name;
    return copy;
  }
  consteval Field internal() const {
    Field copy = *this;
    copy.is_internal = true;
    return copy;
  }
  consteval Field unset(std::string_view note) const {
    Field copy = *this;
    copy.unset_note = note;
    return copy;
  }
  consteval Field one_of(std::string_view words) const {
    Field copy = *this;
    copy.string_words = words;
    return copy;
  }
};

consteval Field field(std::string_view key, std::string_view meaning) {
  Field made;
  made.key = key;
  made.meaning = meaning;
  return made;
}

}  // namespace trainctl
