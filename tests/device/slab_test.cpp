#include "device/slab.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "base/error.h"
#include "catch.h"

namespace trainctl {
namespace {

const std::vector<SlabRow> rows{{"weight", Shape{3, 5}, DType::f32},
                                {"mask", Shape{7}, DType::u8},
                                {"nothing", Shape{0}, DType::f32},
                                {"half", Shape{2, 2, 2}, DType::bf16}};

bool aligned(const void* data) { return reinterpret_cast<std::uintptr_t>(data) % 64 == 0; }

TEST_CASE("a slab places its rows in order, padded, zeroed and named") {
  const Slab slab(DeviceKind::cpu, rows);
  REQUIRE(slab.bytes().numel() == 64 + 64 + 0 + 64);
  REQUIRE(slab.bytes().dtype == DType::u8);
  const auto* bytes = slab.bytes().as<std::uint8_t>();
  REQUIRE(std::all_of(bytes, bytes + slab.bytes().numel(), [](int byte) { return byte == 0; }));
  const Tensor weight = slab.at("weight");
  REQUIRE(weight.data == bytes);
  REQUIRE(weight.shape == Shape{3, 5});
  REQUIRE(weight.dtype == DType::f32);
  REQUIRE(slab.at("mask").data == bytes + 64);
  REQUIRE(slab.at("half").data == bytes + 128);
  REQUIRE(aligned(slab.at("half").data));
  REQUIRE(slab.contains("mask"));
  REQUIRE_FALSE(slab.contains("bias"));
}

TEST_CASE("a row of more than 2 GiB of elements is counted in 64 bits") {
  REQUIRE(Slab::padded_bytes({"x", Shape{3, std::int64_t{1} << 30}, DType::f32}) == std::int64_t{12}
                                                                                        << 30);
}

TEST_CASE("a large slab is zeroed, aligned and writable to its end") {
  Slab slab(DeviceKind::cpu, {{"large", Shape{5, 1 << 20}, DType::f32}});
  const Tensor large = slab.at("large");
  REQUIRE(reinterpret_cast<std::uintptr_t>(large.data) % (2 << 20) == 0);
  auto* values = large.as<float>();
  REQUIRE(std::all_of(values, values + large.numel(), [](float value) { return value == 0; }));
  std::fill(values, values + large.numel(), 1.0F);
  REQUIRE(values[large.numel() - 1] == 1.0F);
}

TEST_CASE("an empty slab has no memory") {
  const Slab slab(DeviceKind::cpu, {});
  REQUIRE(slab.bytes().empty());
  REQUIRE(Slab().bytes().empty());
}

TEST_CASE("a slab moves with its tensors") {
  Slab first(DeviceKind::cpu, rows);
  void* data = first.at("weight").data;
  Slab second(std::move(first));
  REQUIRE(second.at("weight").data == data);
  Slab third(DeviceKind::cpu, {{"other", Shape{1}, DType::i32}});
  third = std::move(second);
  REQUIRE(third.at("weight").data == data);
  REQUIRE_FALSE(third.contains("other"));
}

TEST_CASE("too little memory is an error that gives the sizes") {
  const SlabRow huge{"embedding", Shape{std::int64_t{1} << 50}, DType::f32};
  try {
    const Slab slab(DeviceKind::cpu, {{"small", Shape{1}, DType::f32}, huge});
    FAIL("4 PiB were allocated");
  } catch (const Error& error) {
    const std::string message = error.what();
    REQUIRE(error.code() == ExitCode::unavailable);
    REQUIRE(message.find("4,503,599,627,370,560 bytes") != std::string::npos);
    REQUIRE(message.find("2 tensors, the largest 'embedding'") != std::string::npos);
  }
}

TEST_CASE("raw memory comes zeroed and aligned") {
  for (const std::int64_t bytes : {std::int64_t{1}, std::int64_t{1000}, std::int64_t{3} << 20}) {
    void* data = device_allocate(MemoryKind::host, bytes);
    REQUIRE(aligned(data));
    auto* values = static_cast<std::uint8_t*>(data);
    REQUIRE(std::all_of(values, values + bytes, [](int byte) { return byte == 0; }));
    device_release(MemoryKind::host, data, bytes);
  }
  REQUIRE(device_allocate(MemoryKind::host, 0) == nullptr);
}

}  // namespace
}  // namespace trainctl
