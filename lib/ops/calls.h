// Calls of one op that do not depend on each other, as one: on a device a few launches do them all.
// They are built before the first step; running them allocates and copies nothing.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "device/slab.h"
#include "device/stream.h"
#include "ops/context.h"

namespace trainctl {

/// At most so many pieces, whatever the calls: the size of a piece grows. It depends on nothing but
/// the elements.
inline constexpr std::int64_t most_pieces = std::int64_t{1} << 17;
inline constexpr std::int64_t least_piece = 4096;

/// How calls are cut into pieces: of `size` elements of one call, the last of a call of fewer.
struct Pieces {
  std::vector<std::int64_t> first;  // by call, the number of its first piece
  std::int64_t total = 0;
  std::int64_t size = least_piece;
};

/// `elements`: of each call. Throws Error{unavailable} for more calls than half of most_pieces.
Pieces cut_into_pieces(std::span<const std::int64_t> elements);

/// What kernels of a device read; `calls` and `first` are in its memory.
template <class Args>
struct PlacedCalls {
  const Args* calls = nullptr;
  const std::int64_t* first = nullptr;  // Pieces::first
  std::int64_t count = 0;               // of calls
  std::int64_t pieces = 0;
  std::int64_t piece = 0;  // Pieces::size
};

/// Args is an op's arguments, with a function elements_of(args).
template <class Args>
class Calls {
 public:
  static_assert(std::is_trivially_copyable_v<Args>);

  Calls() = default;
  /// What the arguments point to must outlive this object. With a `stream` of a device, a copy for
  /// its kernels is enqueued there.
  explicit Calls(std::vector<Args> list, Stream* stream = nullptr) : list_(std::move(list)) {
    if (stream != nullptr && stream->device() == DeviceKind::cuda && !list_.empty()) place(*stream);
  }

  std::span<const Args> list() const { return list_; }
  /// Nothing without a device.
  const PlacedCalls<Args>& placed() const { return placed_; }

 private:
  void place(Stream& stream) {
    std::vector<std::int64_t> elements;
    for (const Args& args : list_) elements.push_back(elements_of(args));
    const Pieces pieces = cut_into_pieces(elements);
    const auto count = static_cast<std::int64_t>(list_.size());
    const std::vector<SlabRow> rows{
        {"calls", {count * static_cast<std::int64_t>(sizeof(Args))}, DType::u8},
        {"first", {count}, DType::i64}};
    on_host_ = Slab::on_host_for(DeviceKind::cuda, rows);
    on_device_ = Slab(DeviceKind::cuda, rows);
    std::memcpy(on_host_.at("calls").data, list_.data(), list_.size() * sizeof(Args));
    std::ranges::copy(pieces.first, on_host_.at("first").template as<std::int64_t>());
    stream.copy(on_device_.bytes(), on_host_.bytes());
    placed_ = {.calls = static_cast<const Args*>(on_device_.at("calls").data),
               .first = on_device_.at("first").template elements<std::int64_t>(),
               .count = count,
               .pieces = pieces.total,
               .piece = pieces.size};
  }

  std::vector<Args> list_;
  Slab on_host_, on_device_;  // the first as long as the copy may be under way
  PlacedCalls<Args> placed_;
};

/// The kernel for many calls of a backend that has one for a single call.
template <class Args, void (*kernel)(const OpContext&, const Args&)>
void each_call(const OpContext& context, const Calls<Args>& calls) {
  for (const Args& args : calls.list()) kernel(context, args);
}

}  // namespace trainctl
