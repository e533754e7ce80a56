#include "comm/nccl/wire_order.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace trainctl {

namespace {

void put(std::string& bytes, std::int32_t value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

std::int32_t take(const std::string& bytes, std::size_t& place) {
  std::int32_t value = 0;
  require(place + sizeof value <= bytes.size(), ExitCode::internal, "[wires] a list is cut short");
  std::memcpy(&value, bytes.data() + place, sizeof value);
  place += sizeof value;
  return value;
}

bool holds(const WireSpec& wire, int rank) { return std::ranges::count(wire.ranks, rank) > 0; }

bool has(std::span<const WireSpec> all, const WireSpec& one) {
  return std::ranges::any_of(all, [&](const WireSpec& other) { return other.same_as(one); });
}

}  // namespace

std::string WireSpec::text() const {
  constexpr std::size_t most_named = 8;
  std::string list;
  for (std::size_t i = 0; i < std::min(ranks.size(), most_named); ++i) {
    list += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  }
  if (ranks.size() > most_named) list += " and " + std::to_string(ranks.size() - most_named);
  return lane + " among ranks " + list + (ranks.size() > most_named ? " more" : "");
}

std::string wires_to_tell(std::span<const WireSpec> wanted, int rank) {
  std::string bytes;
  for (const WireSpec& wire : wanted) {
    if (wire.ranks.front() != rank) continue;
    put(bytes, static_cast<std::int32_t>(wire.lane.size()));
    bytes += wire.lane;
    put(bytes, wire.line ? 1 : 0);
    put(bytes, wire.exchanges ? 1 : 0);
    put(bytes, static_cast<std::int32_t>(wire.ranks.size()));
    for (const int member : wire.ranks) put(bytes, member);
  }
  return bytes;
}

std::vector<WireSpec> wires_told(std::span<const std::string> told) {
  std::vector<WireSpec> all;
  for (const std::string& bytes : told) {
    for (std::size_t place = 0; place < bytes.size();) {
      WireSpec& wire = all.emplace_back();
      const auto length = static_cast<std::size_t>(take(bytes, place));
      wire.lane = bytes.substr(place, length);
      place += length;
      wire.line = take(bytes, place) != 0;
      wire.exchanges = take(bytes, place) != 0;
      wire.ranks.resize(static_cast<std::size_t>(take(bytes, place)));
      for (int& rank : wire.ranks) rank = take(bytes, place);
    }
  }
  return all;
}

void require_wanted(std::span<const WireSpec> all, std::span<const WireSpec> wanted, int rank) {
  for (const WireSpec& wire : all) {
    require(!holds(wire, rank) || has(wanted, wire), ExitCode::internal,
            "[wires] rank " + std::to_string(rank) + " does not want " + wire.text());
  }
  for (const WireSpec& wire : wanted) {
    require(has(all, wire), ExitCode::internal,
            "[wires] rank " + std::to_string(rank) + " alone wants " + wire.text());
  }
}

std::vector<int> split_rounds(std::span<const WireSpec> all, int world_size) {
  std::vector<int> rounds;
  std::vector<std::vector<bool>> taken;  // by round and rank
  for (const WireSpec& wire : all) {
    const auto free = [&](const std::vector<bool>& round) {
      return std::ranges::none_of(wire.ranks,
                                  [&](int rank) { return round[static_cast<std::size_t>(rank)]; });
    };
    auto round = std::ranges::find_if(taken, free);
    if (round == taken.end()) {
      round = taken.insert(taken.end(), std::vector<bool>(static_cast<std::size_t>(world_size)));
    }
    for (const int rank : wire.ranks) (*round)[static_cast<std::size_t>(rank)] = true;
    rounds.push_back(static_cast<int>(round - taken.begin()));
  }
  return rounds;
}

}  // namespace trainctl
