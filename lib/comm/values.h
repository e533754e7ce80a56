// Exchange of structs, texts and enums between the ranks of a group: as bytes, for processes of one
// program on machines of one kind.
#pragma once

#include <concepts>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <vector>

#include "base/error.h"
#include "comm/group.h"

namespace trainctl {

/// A struct whose members pack() knows from a list next to it:
/// `constexpr auto members_of(const Point*) { return std::tuple(&Point::x, &Point::y); }`.
template <class Value>
concept HasMembers = requires(const Value* value) {
  members_of(value);
};

template <class Value>
concept IsPlain = std::is_arithmetic_v<Value> || std::is_enum_v<Value>;

/// Appends a number, an enum, a text, a path, a container of such values, or a struct that lists
/// its members.
template <class Value>
void pack(const Value& value, std::string& bytes) {
  if constexpr (HasMembers<Value>) {
    std::apply([&](auto... member) { (pack(value.*member, bytes), ...); }, members_of(&value));
  } else if constexpr (std::is_same_v<Value, std::filesystem::path>) {
    pack(value.string(), bytes);
  } else if constexpr (IsPlain<Value>) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof(Value));
  } else {
    pack(static_cast<std::int64_t>(value.size()), bytes);
    for (const auto& item : value) pack(item, bytes);
  }
}

/// Takes a value that pack() wrote off the front of `bytes`. Members that its type does not list
/// stay as they are. Throws Error{peer} where bytes are missing.
template <class Value>
void unpack(std::string_view& bytes, Value& value) {
  if constexpr (HasMembers<Value>) {
    std::apply([&](auto... member) { (unpack(bytes, value.*member), ...); }, members_of(&value));
  } else if constexpr (std::is_same_v<Value, std::filesystem::path>) {
    std::string text;
    unpack(bytes, text);
    value = text;
  } else if constexpr (IsPlain<Value>) {
    require(bytes.size() >= sizeof(Value), ExitCode::peer, "a message of another rank is cut off");
    std::memcpy(&value, bytes.data(), sizeof(Value));
    bytes.remove_prefix(sizeof(Value));
  } else {
    std::int64_t count = 0;
    unpack(bytes, count);
    // Each item has at least one byte.
    require(count >= 0 && count <= static_cast<std::int64_t>(bytes.size()), ExitCode::peer,
            "a message of another rank is cut off");
    if constexpr (requires { value.resize(0); }) value.resize(static_cast<std::size_t>(count));
    require(count == static_cast<std::int64_t>(value.size()), ExitCode::peer,
            "a message of another rank has another length");
    for (auto& item : value) unpack(bytes, item);
  }
}

/// Gives the value of rank `root` to all. Members that its type does not list stay as they are.
/// Collective.
template <class Value>
void broadcast(Group& group, Value& value, int root = 0) {
  std::string bytes;
  if (group.rank() == root) pack(value, bytes);
  broadcast_bytes(group, bytes, root);
  std::string_view rest = bytes;
  if (group.rank() != root) unpack(rest, value);
}

/// Every member's value, in rank order, on rank `root`; empty elsewhere. Collective.
template <class Value>
std::vector<Value> gather(Group& group, const Value& mine, int root = 0) {
  std::string bytes;
  pack(mine, bytes);
  std::vector<Value> all;
  for (const std::string& one : gather_bytes(group, bytes, root)) {
    std::string_view rest = one;
    unpack(rest, all.emplace_back());
  }
  return all;
}

/// Every member's enum, flag or integer, in rank order, on all ranks. Collective.
template <class Value>
requires(std::is_enum_v<Value> || std::integral<Value>) std::vector<Value> gather_all(Group& group,
                                                                                      Value mine) {
  std::vector<Value> all;
  for (const std::uint64_t one : gather_values(group, static_cast<std::uint64_t>(mine))) {
    all.push_back(static_cast<Value>(one));
  }
  return all;
}

}  // namespace trainctl
