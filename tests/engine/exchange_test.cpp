// Where several tensors lie in the buffer of one call.
#include "engine/parameters/sync.h"

#include <numeric>

#include "catch.h"
#include "device/stream.h"

using namespace trainctl;

namespace {

/// Two tensors of six and three elements, 1 to 9, divided among three ranks.
struct Two {
  std::vector<float> first{1, 2, 3, 4, 5, 6};
  std::vector<float> second{7, 8, 9};
  std::vector<float> buffer = std::vector<float>(9);
  Stream stream{DeviceKind::cpu, "inline", Stream::Mode::run_inline};
  OpContext ops{.kernels = nullptr, .stream = &stream};

  static Tensor tensor(std::vector<float>& values) {
    return host_tensor(values.data(), static_cast<std::int64_t>(values.size()));
  }
  std::vector<Divided> divided(int rank) {
    const Tensor one = tensor(first);
    const Tensor other = tensor(second);
    return {{one, one.slice(2 * rank, 2 * rank + 2)}, {other, other.slice(rank, rank + 1)}};
  }
};

}  // namespace

TEST_CASE("what is scattered is packed rank by rank, and the own part comes back") {
  Two two;
  const Packed packed = pack_scatter(two.divided(1), Two::tensor(two.buffer), 3, 1);
  enqueue(packed.in, two.ops);
  CHECK(two.buffer == std::vector<float>{1, 2, 7, 3, 4, 8, 5, 6, 9});
  CHECK(packed.all.whole.numel() == 9);
  CHECK(packed.all.part.data == &two.buffer[3]);
  for (float& value : two.buffer) value *= 10;
  enqueue(packed.out, two.ops);
  CHECK(two.first == std::vector<float>{1, 2, 30, 40, 5, 6});
  CHECK(two.second == std::vector<float>{7, 80, 9});
}

TEST_CASE("what is gathered brings everything but the own part") {
  Two two;
  const Packed packed = pack_gather(two.divided(2), Two::tensor(two.buffer), 3, 2);
  enqueue(packed.in, two.ops);
  CHECK(two.buffer == std::vector<float>{0, 0, 0, 0, 0, 0, 5, 6, 9});
  std::iota(two.buffer.begin(), two.buffer.end(), 11.0F);
  enqueue(packed.out, two.ops);
  CHECK(two.first == std::vector<float>{11, 12, 14, 15, 5, 6});
  CHECK(two.second == std::vector<float>{13, 16, 9});
}

TEST_CASE("a tensor alone keeps its order, in the type of the buffer") {
  Two two;
  std::vector<std::uint16_t> half(6);
  const Tensor wire{.data = half.data(), .shape = Shape{6}, .dtype = DType::bf16};
  const std::vector<Divided> all = two.divided(1);
  const Packed packed = pack_scatter({all.data(), 1}, wire, 3, 1);
  CHECK(packed.in.size() == 1);
  REQUIRE(packed.out.size() == 1);
  CHECK(packed.out[0].from.data == &half[2]);
  CHECK(packed.out[0].to.data == &two.first[2]);
}
