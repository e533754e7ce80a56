#include "tested_kernels.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "../device/cuda_available.h"
#include "base/scratch.h"
#include "device/cuda_device.h"

namespace op_test {
namespace {

using namespace trainctl;

// Every place of an operation's arguments that is an address of the device.
template <class Place>
void visit(Matmul& a, const Place& place) {
  place(a.a), place(a.b), place(a.c), place(a.bias);
}
template <class Place>
void visit(FusedMatmul& a, const Place& place) {
  visit(a.product, place), place(a.other);
}
template <class Place>
void visit(NormForward& a, const Place& place) {
  place(a.x), place(a.residual), place(a.sum), place(a.weight), place(a.bias), place(a.y);
  place(a.mean), place(a.rstd), place(a.sums);
}
template <class Place>
void visit(NormBackward& a, const Place& place) {
  place(a.dy), place(a.x), place(a.weight), place(a.mean), place(a.rstd), place(a.d_residual);
  place(a.dx), place(a.dweight), place(a.dbias), place(a.sums);
}
template <class Place>
void visit(NormSums& a, const Place& place) {
  place(a.x), place(a.dy), place(a.weight), place(a.sums);
}
template <class Place>
void visit(ActivationArgs& a, const Place& place) {
  place(a.x), place(a.y), place(a.dy), place(a.dx), place(a.up), place(a.dup);
}
template <class Place>
void visit(Add& a, const Place& place) {
  place(a.a), place(a.b), place(a.y);
}
template <class Place>
void visit(Cast& a, const Place& place) {
  place(a.x), place(a.y);
}
template <class Place>
void visit(BiasGradient& a, const Place& place) {
  place(a.dy), place(a.db);
}
template <class Place>
void visit(Dropout& a, const Place& place) {
  place(a.x), place(a.global_token), place(a.key.state);
}
template <class Place>
void visit(Rope& a, const Place& place) {
  place(a.x), place(a.position), place(a.table);
}
template <class Place>
void visit(AttentionArgs& a, const Place& place) {
  place(a.q), place(a.k), place(a.v), place(a.first_position), place(a.out), place(a.logsumexp);
  place(a.dropout.global_token), place(a.dropout.key.state);
  place(a.largest), place(a.real), place(a.d_out), place(a.dq), place(a.dk), place(a.dv);
}
template <class Place>
void visit(AttentionMerge& a, const Place& place) {
  place(a.out), place(a.logsumexp), place(a.other), place(a.other_logsumexp);
}
template <class Place>
void visit(AttentionSinkArgs& a, const Place& place) {
  place(a.sinks), place(a.out), place(a.logsumexp), place(a.d_out), place(a.d_sinks);
}
template <class Place>
void visit(EmbeddingArgs& a, const Place& place) {
  place(a.indices), place(a.table), place(a.y), place(a.dy), place(a.dtable);
}
template <class Place>
void visit(RouterForward& a, const Place& place) {
  place(a.logits), place(a.real), place(a.bias), place(a.chosen), place(a.weight);
  place(a.slot), place(a.choices), place(a.counts);
}
template <class Place>
void visit(RouterBackward& a, const Place& place) {
  place(a.logits), place(a.chosen), place(a.d_weight), place(a.d_logits);
}
template <class Place>
void visit(RouterLosses& a, const Place& place) {
  place(a.logits), place(a.chosen), place(a.real), place(a.choices), place(a.d_logits);
  place(a.state), place(a.sums);
}
template <class Place>
void visit(MoveRows& a, const Place& place) {
  place(a.x), place(a.slot), place(a.y);
}
template <class Place>
void visit(ScaleRows& a, const Place& place) {
  place(a.x), place(a.weight), place(a.y), place(a.dy), place(a.dx), place(a.d_weight);
}
template <class Place>
void visit(BiasRows& a, const Place& place) {
  place(a.y), place(a.dy), place(a.weight), place(a.bias), place(a.d_bias), place(a.d_weight);
}
template <class Place>
void visit(CrossEntropyCombine& a, const Place& place) {
  place(a.shards), place(a.whole);
}
template <class Place>
void visit(CrossEntropyArgs& a, const Place& place) {
  place(a.logits), place(a.labels), place(a.row_max), place(a.row_sum), place(a.target);
  place(a.weight), place(a.state);
}
template <class Place>
void visit(Update& a, const Place& place) {
  place(a.parameter), place(a.gradient), place(a.states[0]), place(a.states[1]), place(a.compute);
  place(a.state), place(a.factor);
}
template <class Place>
void visit(SquareSum& a, const Place& place) {
  place(a.x), place(a.result);
}
template <class Place>
void visit(StepVerdict& a, const Place& place) {
  place(a.square_sums), place(a.state);
}
template <class Place>
void visit(NormalFill& a, const Place& place) {
  place(a.x);
}
template <class Place>
void visit(SwapBlocks& a, const Place& place) {
  place(a.x), place(a.y);
}
template <class Place>
void visit(ScaledSum& a, const Place& place) {
  place(a.x), place(a.y), place(a.z), place(a.squares);
}
template <class Place>
void visit(Largest& a, const Place& place) {
  place(a.x), place(a.key), place(a.real);
}
template <class Place>
void visit(CopyRows& a, const Place& place) {
  place(a.x), place(a.y);
}

template <class Args, class Place>
void visit(std::vector<Args>& calls, const Place& place) {
  for (Args& args : calls) visit(args, place);
}

/// Memory of the device, to the byte: a write beyond it is found on the host.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  explicit DeviceMemory(std::int64_t bytes) : data_(cuda_allocate(bytes)), bytes_(bytes) {}
  ~DeviceMemory() { cuda_release(data_); }
  DeviceMemory(DeviceMemory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}
  DeviceMemory& operator=(DeviceMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  std::byte* data() const { return static_cast<std::byte*>(data_); }
  Tensor tensor() const { return Tensor{data_, Shape{bytes_}, DType::u8, DeviceKind::cuda}; }

 private:
  void* data_ = nullptr;
  std::int64_t bytes_ = 0;
};

/// Host memory that operands lie in, and its copy on the device.
struct Piece {
  std::byte* begin;
  std::byte* end;
  bool is_const;  // stays as it is
  DeviceMemory device;
};

/// Gives every operand its place on the device; operands that share memory share it there.
class Staging {
 public:
  template <class Args>
  explicit Staging(Args& args) {
    visit(args, [this](auto& operand) { note(operand); });
    join();
    for (Piece& piece : pieces_) {
      piece.device = DeviceMemory(piece.end - piece.begin);
      stream().copy(piece.device.tensor(), host(piece));
    }
    visit(args, [this](auto& operand) { move(operand); });
  }

  void bring_back() {
    for (Piece& piece : pieces_) {
      if (!piece.is_const) stream().copy(host(piece), piece.device.tensor());
    }
    stream().synchronize();
  }

  static Stream& stream() {
    static thread_local Stream kept(DeviceKind::cuda, "op tests", Stream::Mode::queued);
    return kept;
  }

 private:
  static Tensor host(const Piece& piece) {
    return Tensor{piece.begin, Shape{piece.end - piece.begin}, DType::u8, DeviceKind::cpu};
  }
  void note(void* data, std::int64_t bytes, bool is_const) {
    auto* begin = static_cast<std::byte*>(data);
    if (data != nullptr && bytes > 0)
      pieces_.push_back({begin, begin + bytes, is_const, DeviceMemory()});
  }
  void note(const Tensor& tensor) { note(tensor.data, tensor.bytes(), false); }
  template <class T>
  void note(T* value) {
    note(const_cast<std::remove_const_t<T>*>(value), sizeof(T), std::is_const_v<T>);
  }

  void join() {
    std::sort(pieces_.begin(), pieces_.end(),
              [](const Piece& a, const Piece& b) { return a.begin < b.begin; });
    std::vector<Piece> joined;
    for (Piece& piece : pieces_) {
      if (!joined.empty() && piece.begin < joined.back().end) {
        joined.back().end = std::max(joined.back().end, piece.end);
        joined.back().is_const = joined.back().is_const && piece.is_const;
      } else {
        joined.push_back(std::move(piece));
      }
    }
    pieces_ = std::move(joined);
  }

  void* moved(const void* data) const {
    const auto* at = static_cast<const std::byte*>(data);
    for (const Piece& piece : pieces_) {
      if (at >= piece.begin && at < piece.end) {
        return piece.device.data() + (at - piece.begin);
      }
    }
    return const_cast<void*>(data);  // of no elements
  }
  void move(Tensor& tensor) const {
    if (tensor.empty()) return;
    tensor.data = moved(tensor.data);
    tensor.device = DeviceKind::cuda;
  }
  template <class T>
  void move(T*& value) const {
    if (value != nullptr) value = static_cast<T*>(moved(value));
  }

  std::vector<Piece> pieces_;
};

OpContext device_context() {
  static thread_local const DeviceMemory scratch(scratch_bytes(DeviceKind::cuda, 1));
  return {&kernels_for(DeviceKind::cuda), &Staging::stream(), scratch.data(),
          scratch_bytes(DeviceKind::cuda, 1)};
}

/// The kernel of the device, with operands that lie on the host.
template <class Args>
struct Staged {
  template <Kernel<Args> Kernels::*entry>
  static void run(const OpContext&, const Args& args) {
    const OpContext context = device_context();
    Args moved = args;
    Staging staging(moved);
    (context.kernels->*entry)(context, moved);
    staging.bring_back();
  }
};
template <class Args>
struct Staged<Calls<Args>> {
  template <Kernel<Calls<Args>> Kernels::*entry>
  static void run(const OpContext&, const Calls<Args>& calls) {
    const OpContext context = device_context();
    std::vector<Args> moved(calls.list().begin(), calls.list().end());
    Staging staging(moved);
    const Calls<Args> placed(moved, context.stream);
    (context.kernels->*entry)(context, placed);
    staging.bring_back();
  }
};
template <>
struct Staged<MatmulBatch> {
  template <Kernel<MatmulBatch> Kernels::*entry>
  static void run(const OpContext&, const MatmulBatch& args) {
    const OpContext context = device_context();
    std::vector<FusedMatmul> moved(args.begin(), args.end());
    Staging staging(moved);
    (context.kernels->*entry)(context, moved);
    staging.bring_back();
  }
};

/// Entries that the device has not stay null.
Kernels staged_kernels() {
  const Kernels& device = kernels_for(DeviceKind::cuda);
  Kernels staged{
      .name = device.name,
#define KERNEL(entry, Args) \
  .entry = device.entry == nullptr ? nullptr : Staged<Args>::run<&Kernels::entry>,
#include "ops/kernels.def"
#undef KERNEL
  };
  return staged;
}

}  // namespace

bool tests_device() {
  const char* device = std::getenv("TRAINCTL_TEST_DEVICE");
  return device != nullptr && std::string_view(device) == "cuda";
}

const Kernels& tested_kernels() {
  if (!tests_device()) return cpu_kernels();
  static const bool available = cuda_available();
  if (!available) std::exit(EXIT_SUCCESS);  // it has said so: CTest takes the test as skipped
  static const Kernels staged = staged_kernels();
  return staged;
}

}  // namespace op_test
