#include "nccl_meeting.h"

#include <cstdint>
#include <cstring>

#include "base/dtype.h"
#include "planted.h"

namespace cuda_on_host {

std::size_t size_of(ncclDataType_t type) {
  switch (type) {
    case ncclUint8: return 1;
    case ncclBfloat16:
    case ncclFloat16: return 2;
    case ncclFloat32: return 4;
    default: return 8;
  }
}

namespace {

float read(const std::byte* from, std::size_t index, ncclDataType_t type) {
  const std::byte* at = from + index * size_of(type);
  if (type == ncclFloat32) return *reinterpret_cast<const float*>(at);
  const auto bits = *reinterpret_cast<const std::uint16_t*>(at);
  return type == ncclBfloat16 ? trainctl::to_float(trainctl::bf16{bits})
                              : trainctl::to_float(trainctl::fp16{bits});
}

float rounded(float value, ncclDataType_t type) {
  if (type == ncclBfloat16) return trainctl::to_float(trainctl::to_bf16(value));
  if (type == ncclFloat16) return trainctl::to_float(trainctl::to_fp16(value));
  return value;
}

void write(std::byte* to, std::size_t index, ncclDataType_t type, float value) {
  std::byte* at = to + index * size_of(type);
  if (type == ncclFloat32) {
    *reinterpret_cast<float*>(at) = value;
  } else {
    *reinterpret_cast<std::uint16_t*>(at) =
        type == ncclBfloat16 ? trainctl::to_bf16(value).bits : trainctl::to_fp16(value).bits;
  }
}

/// The sum over the members of element `index`.
float sum_of(const Meeting& meeting, std::size_t index, ncclDataType_t type) {
  const std::size_t size = meeting.calls.size();
  float sum = 0;
  for (std::size_t i = 0; i < size; ++i) {
    const std::size_t member = (index / 64 + 1 + i) % size;
    sum = rounded(sum + read(meeting.calls[member]->from, index, type), type);
  }
  if (planted("mean")) sum /= static_cast<float>(size);
  return sum;
}

void gather(const Meeting& meeting, std::size_t bytes) {
  std::vector<std::byte> all;
  for (const auto& call : meeting.calls) all.insert(all.end(), call->from, call->from + bytes);
  for (const auto& call : meeting.calls) std::memcpy(call->to, all.data(), all.size());
}

}  // namespace

void perform(const Meeting& meeting) {
  const Call& first = *meeting.calls.front();
  const std::size_t size = meeting.calls.size();
  const std::size_t bytes = first.count * size_of(first.type);
  if (first.kind == Kind::all_gather) return gather(meeting, bytes);
  if (first.kind == Kind::broadcast) {
    const std::byte* from = meeting.calls[static_cast<std::size_t>(first.root)]->from;
    for (const auto& call : meeting.calls) std::memmove(call->to, from, bytes);
    return;
  }
  // All sums before any result: results may lie where operands do.
  const bool scatter = first.kind == Kind::reduce_scatter;
  std::vector<float> sums(first.count * (scatter ? size : 1));
  for (std::size_t i = 0; i < sums.size(); ++i) sums[i] = sum_of(meeting, i, first.type);
  for (std::size_t member = 0; member < size; ++member) {
    const std::size_t begin = scatter ? member * first.count : 0;
    for (std::size_t i = 0; i < first.count; ++i) {
      write(meeting.calls[member]->to, i, first.type, sums[begin + i]);
    }
  }
}

}  // namespace cuda_on_host
