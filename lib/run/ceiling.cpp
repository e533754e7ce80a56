#include "run/ceiling.h"

#include <algorithm>
#include <cstring>

#include "base/parallel_for.h"
#include "device/cuda_device.h"
#include "ops/elementwise.h"
#include "ops/matmul.h"

namespace trainctl {

SquareProduct::SquareProduct(const OpContext& context, std::int64_t n, DType dtype)
    : n_(n),
      slab_(context.stream->device(),
            {{"a", {n, n}, dtype}, {"b", {n, n}, dtype}, {"c", {n, n}, DType::f32}}) {
  if (slab_.device() == DeviceKind::cpu) {
    for (const char* name : {"a", "b"}) {
      const Tensor operand = slab_.at(name);
      std::memset(operand.data, 0x3c, static_cast<std::size_t>(operand.bytes()));
    }
    return;
  }
  const Tensor wide = slab_.at("c").view({n * n});
  std::uint64_t stream = 0;
  for (const char* name : {"a", "b"}) {
    normal_fill(context, {.x = wide, .seed = 1, .stream = ++stream});
    cast(context, {.x = wide, .y = slab_.at(name).view({n * n})});
  }
  context.stream->synchronize();
}

void SquareProduct::enqueue(const OpContext& context) const {
  matmul(context,
         {.a = slab_.at("a"), .b = slab_.at("b"), .c = slab_.at("c"), .transpose_b = true});
}

void SquareProduct::run(const OpContext& context) const {
  enqueue(context);
  context.stream->synchronize();
}

LargeCopy::LargeCopy(DeviceKind device, std::int64_t bytes)
    : bytes_(bytes), slab_(device, {{"from", {bytes}, DType::u8}, {"to", {bytes}, DType::u8}}) {
  if (device != DeviceKind::cpu) return;
  // Memory that was never written is one page of zeros, which stays in the cache.
  std::memset(slab_.at("from").data, 1, static_cast<std::size_t>(bytes));
}

void LargeCopy::enqueue(Stream& stream) const {
  if (slab_.device() != DeviceKind::cpu) return stream.copy(slab_.at("to"), slab_.at("from"));
  auto* to = static_cast<std::byte*>(slab_.at("to").data);
  const auto* from = static_cast<const std::byte*>(slab_.at("from").data);
  parallel_for(bytes_, 1 << 20, [&](std::int64_t begin, std::int64_t end) {
    std::memcpy(to + begin, from + begin, static_cast<std::size_t>(end - begin));
  });
}

void LargeCopy::run(Stream& stream) const {
  enqueue(stream);
  stream.synchronize();
}

std::int64_t bytes_beyond_cache(DeviceKind device) {
  if (device == DeviceKind::cpu) return std::int64_t{256} << 20;
  constexpr std::int64_t least = std::int64_t{1} << 20;
  return std::max(least, 4 * cuda_module().properties(0).cache_bytes);
}

}  // namespace trainctl
