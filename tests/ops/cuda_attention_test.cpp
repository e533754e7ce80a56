// Attention by cuDNN against the plain kernels, in one part and in several.
#include <cmath>

#include "../device/cuda_available.h"
#include "base/error.h"
#include "base/scratch.h"
#include "catch.h"
#include "cuda_device_copy.h"
#include "ops/cuda_libraries.h"

using namespace trainctl;

namespace {

/// Whether the library can be tried here; says why not.
bool has_cudnn() {
  if (!cuda_available()) return false;
  try {
    return cuda_attention().version() > 0;
  } catch (const Error& error) {
    WARN("not tried: " << error.what());
    return false;
  }
}

struct Attended {
  AttentionExtents extents;
  HostTensor q, k, v, d_out, out, logsumexp, dq, dk, dv;

  Attended(const AttentionExtents& all, DType type) : extents(all) {
    const Shape queries{all.sequences * all.length, all.heads * all.head_dim};
    const Shape keys{all.sequences * all.length, all.kv_heads * all.head_dim};
    q = HostTensor::random(queries, type, 1);
    k = HostTensor::random(keys, type, 2);
    v = HostTensor::random(keys, type, 3);
    d_out = HostTensor::random(queries, type, 4);
    out = HostTensor(queries, type);
    logsumexp = HostTensor({all.sequences, all.heads, all.length}, DType::f32);
    dq = HostTensor(queries, type);
    dk = HostTensor(keys, type);
    dv = HostTensor(keys, type);
  }
  AttentionShape shape() const {
    return {.sequences = extents.sequences,
            .query_length = extents.length,
            .key_length = extents.length,
            .heads = extents.heads,
            .kv_heads = extents.kv_heads,
            .head_dim = extents.head_dim,
            .query_offset = 0,
            .scale = 1.0F / std::sqrt(static_cast<float>(extents.head_dim))};
  }
};

struct Computed {
  HostTensor out, logsumexp, dq, dk, dv;
};

/// place(host tensor) is where the kernels of `context` find it; get(tensor) reads it back.
template <class Place, class Get>
Computed attend(const OpContext& context, const Attended& host, const Place& place,
                const Get& get) {
  AttentionArgs args;
  args.shape = host.shape();
  args.q = place(host.q);
  args.k = place(host.k);
  args.v = place(host.v);
  args.out = place(host.out);
  args.logsumexp = place(host.logsumexp);
  args.d_out = place(host.d_out);
  args.dq = place(host.dq);
  args.dk = place(host.dk);
  args.dv = place(host.dv);
  attention_forward(context, args);
  attention_backward(context, args);
  return {get(args.out), get(args.logsumexp), get(args.dq), get(args.dk), get(args.dv)};
}

Computed attend_there(const Attended& host, const AttentionExtents& part) {
  DeviceCopy device;
  const Slab scratch(
      DeviceKind::cuda,
      {{"scratch", {scratch_bytes(DeviceKind::cuda, 1) + attention_bytes(part)}, DType::u8}});
  OpContext context = device.context();
  context.scratch = static_cast<std::byte*>(scratch.at("scratch").data);
  context.scratch_bytes = scratch.at("scratch").bytes();
  return attend(
      context, host, [&](const HostTensor& tensor) { return device.put(tensor); },
      [&](const Tensor& tensor) { return device.get(tensor); });
}

Computed attend_here(const Attended& host) {
  return attend(
      plain_context(), host, [](const HostTensor& tensor) { return tensor.tensor(); },
      [&](const Tensor& tensor) {
        for (const HostTensor* one : {&host.out, &host.logsumexp, &host.dq, &host.dk, &host.dv}) {
          if (one->tensor().data == tensor.data) return *one;
        }
        throw Error(ExitCode::internal, "not a result");
      });
}

/// Probabilities and gradients of scores are rounded to the operands' type.
void compare_attention(const AttentionExtents& extents, DType type, std::int64_t wished) {
  const AttentionExtents part = attention_part(extents, wished);
  CAPTURE(extents.sequences, extents.length, extents.heads, extents.kv_heads, extents.head_dim,
          extents.ordered, name_of(type), part.sequences, part.kv_heads);
  cuda_attention().prepare(extents, part, type);
  const Attended operands(extents, type);
  const Computed got = attend_there(operands, part);
  const Computed again = attend_there(operands, part);
  const Computed expected = attend_here(operands);
  const double allowed = type == DType::bf16 ? 2e-2 : 2.5e-3;
  CHECK(difference(got.out, expected.out) < allowed);
  CHECK(difference(got.logsumexp, expected.logsumexp) < 1e-4);
  CHECK(difference(got.dq, expected.dq) < allowed);
  CHECK(difference(got.dk, expected.dk) < allowed);
  CHECK(difference(got.dv, expected.dv) < allowed);
  CHECK(got.out.bytes() == again.out.bytes());
  if (extents.ordered) CHECK(got.dq.bytes() == again.dq.bytes());
  CHECK(got.dk.bytes() == again.dk.bytes());
  CHECK(got.dv.bytes() == again.dv.bytes());
}

}  // namespace

TEST_CASE("attention by cuDNN", "[cuda]") {
  if (!has_cudnn()) return;
  constexpr std::int64_t in_one = wished_attention_bytes;
  compare_attention({2, 128, 2, 2, 64}, DType::bf16, in_one);
  compare_attention({2, 128, 2, 1, 64}, DType::f16, in_one);
  compare_attention({1, 256, 4, 2, 128}, DType::bf16, in_one);
  // Part by part: one sequence each, and one head of the keys each.
  compare_attention({2, 128, 4, 2, 64}, DType::bf16, attention_bytes({1, 128, 4, 2, 64}));
  compare_attention({2, 128, 4, 2, 64}, DType::f16, 1);
}

TEST_CASE("attention by cuDNN whose sums have no fixed order", "[cuda]") {
  if (!has_cudnn()) return;
  constexpr std::int64_t in_one = wished_attention_bytes;
  const AttentionExtents one{1, 128, 4, 2, 64, false};
  compare_attention({2, 128, 2, 2, 64, false}, DType::bf16, in_one);
  compare_attention({1, 256, 4, 2, 128, false}, DType::f16, in_one);
  compare_attention({2, 128, 4, 2, 64, false}, DType::bf16, attention_bytes(one));
  compare_attention({2, 128, 4, 2, 64, false}, DType::f16, 1);
}

TEST_CASE("attention that was not prepared for cuDNN is our kernels'", "[cuda]") {
  if (!has_cudnn()) return;
  const AttentionExtents extents{1, 128, 2, 1, 64};
  cuda_attention().prepare(extents, extents, DType::bf16);
  const Attended other({1, 64, 2, 1, 64}, DType::bf16);
  const Computed expected = attend_here(other);
  CHECK(difference(attend_there(other, extents).out, expected.out) < 2e-2);
}
