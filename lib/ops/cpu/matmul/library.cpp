#include <omp.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <exception>
#include <iterator>
#include <memory>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "base/error.h"
#include "base/integers.h"
#include "base/parallel_for.h"
#include "ops/cpu/matmul/products.h"
#include "ops/cpu_level.h"

namespace trainctl::onednn {

// Products of plain row-major matrices by oneDNN's matmul primitive. Only this file depends on the
// installed version of oneDNN, 2.6 (Debian 12) or 3. Internal to lib/ops.

/// Limits oneDNN, which detects the processor itself, to the instructions of `level`. Must be
/// called before oneDNN's first product.
inline void limit_instructions(CpuLevel level) {
  const dnnl::cpu_isa isa = level == CpuLevel::amx           ? dnnl::cpu_isa::avx512_core_amx
                            : level == CpuLevel::avx512_bf16 ? dnnl::cpu_isa::avx512_core_bf16
                            : level == CpuLevel::avx512      ? dnnl::cpu_isa::avx512_core
                                                             : dnnl::cpu_isa::avx2;
  // Without this function, oneDNN uses all instructions, which is right at the highest level.
  require(
      dnnl::set_max_cpu_isa(isa) == dnnl::status::success || level == available_cpu_levels().back(),
      ExitCode::unavailable,
      "this oneDNN cannot be kept to CPU level " + std::string(name_of(level)));
}

inline const dnnl::engine& engine() {
  static const dnnl::engine cpu = [] {
    limit_instructions(cpu_level());
    return dnnl::engine(dnnl::engine::kind::cpu, 0);
  }();
  return cpu;
}

inline dnnl::memory::data_type type_of(DType type) {
  return type == DType::bf16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

/// The operands of a product; `bias` is a zero descriptor if there is no bias.
struct MatmulOperands {
  dnnl::memory::desc a, b, bias, c;
};

#if DNNL_VERSION_MAJOR >= 3

inline dnnl::matmul::primitive_desc describe(const MatmulOperands& operands,
                                             const dnnl::primitive_attr& attributes) {
  using Description = dnnl::matmul::primitive_desc;
  return operands.bias.is_zero()
             ? Description(engine(), operands.a, operands.b, operands.c, attributes)
             : Description(engine(), operands.a, operands.b, operands.bias, operands.c, attributes);
}

#else

inline dnnl::matmul::primitive_desc describe(const MatmulOperands& operands,
                                             const dnnl::primitive_attr& attributes) {
  const dnnl::matmul::desc description =
      operands.bias.is_zero()
          ? dnnl::matmul::desc(operands.a, operands.b, operands.c)
          : dnnl::matmul::desc(operands.a, operands.b, operands.bias, operands.c);
  return {description, attributes, engine()};
}

#endif

}  // namespace trainctl::onednn

namespace trainctl {

namespace {

/// The division of a product among threads: strips of rows, or of columns if there is one row,
/// `width` wide except the last. Strips are contiguous in memory; for other strips oneDNN allocates
/// in every call.
struct ThreadCut {
  std::int64_t strips = 1;
  std::int64_t width = 0;
  bool by_rows = true;
  friend bool operator==(const ThreadCut&, const ThreadCut&) = default;
};

struct Key {
  MatmulShape shape;
  ThreadCut cut;
  friend bool operator==(const Key&, const Key&) = default;
};

/// The number of strips with about 20 microseconds of work each: by the operations of the product,
/// and by the bytes it reads, which dominate if it has few rows. With half the bytes per strip, two
/// threads generate from a small model no faster than one.
std::int64_t strips_worth(const Matmul& args, const MatmulShape& shape) {
  constexpr std::int64_t flops_per_strip = 1'000'000;
  constexpr std::int64_t bytes_per_strip = 256 << 10;
  return std::max(2 * shape.m * shape.n * shape.k / flops_per_strip,
                  (args.a.bytes() + args.b.bytes()) / bytes_per_strip);
}

ThreadCut cut_of(const Matmul& args, const MatmulShape& shape) {
  constexpr std::int64_t multiple = 16;  // elements of a vector
  const bool by_rows = shape.m >= 2 * multiple;
  const bool divides = by_rows ? !shape.transpose_a : shape.m == 1 && shape.transpose_b;
  const std::int64_t length = by_rows ? shape.m : shape.n;
  const std::int64_t most =
      divides ? std::clamp<std::int64_t>(strips_worth(args, shape), 1, thread_count()) : 1;
  const std::int64_t width = most == 1 ? length : round_up((length + most - 1) / most, multiple);
  return {(length + width - 1) / width, width, by_rows};
}

void require_success(dnnl_status_t status, const char* call) {
  if (status == dnnl_success) return;
  throw Error(ExitCode::internal, "[matmul] oneDNN's " + std::string(call) +
                                      " failed with status " +
                                      std::to_string(static_cast<int>(status)));
}

dnnl::memory::desc matrix(std::int64_t rows, std::int64_t columns, DType type, bool transposed) {
  return {{rows, columns},
          onednn::type_of(type),
          transposed ? dnnl::memory::format_tag::ba : dnnl::memory::format_tag::ab};
}

dnnl::matmul::primitive_desc describe(const MatmulShape& shape) {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (shape.accumulate) {
    dnnl::post_ops sum;
    sum.append_sum(1.0F);
    attributes.set_post_ops(sum);
  }
  return onednn::describe(
      {.a = matrix(shape.m, shape.k, shape.operand, shape.transpose_a),
       .b = matrix(shape.k, shape.n, shape.operand, shape.transpose_b),
       .bias = shape.bias ? matrix(1, shape.n, DType::f32, false) : dnnl::memory::desc(),
       .c = matrix(shape.m, shape.n, shape.result, false)},
      attributes);
}

std::byte* moved(const Tensor& tensor, std::int64_t elements) {
  return static_cast<std::byte*>(tensor.data) + elements * size_of(tensor.dtype);
}

/// A strip's primitive with its memory objects, whose addresses alone change between calls, so that
/// running it allocates none of our memory. Any thread may run it.
class Prepared {
 public:
  /// Rows or columns [begin, end) of the product.
  Prepared(const Key& key, std::int64_t begin, std::int64_t end)
      : Prepared(describe(strip_of(key, begin, end))) {
    row_ = key.cut.by_rows ? begin : 0;
    column_ = key.cut.by_rows ? 0 : begin;
    depth_ = key.shape.k;
    columns_ = key.shape.n;
  }

  std::int64_t scratch_bytes() const { return scratch_bytes_; }

  void run(const Matmul& args, std::byte* scratch) {
    // oneDNN's own threads would wait as set by environment variables before the program starts.
    omp_set_num_threads(1);
    point(0, moved(args.a, row_ * depth_));
    point(1, moved(args.b, column_ * depth_));
    point(2, moved(args.c, row_ * columns_ + column_));
    point(3, scratch);
    if (!args.bias.empty()) point(4, moved(args.bias, column_));
    require_success(dnnl_primitive_execute(primitive_.get(), stream_.get(),
                                           args.bias.empty() ? 4 : 5, operands_.data()),
                    "execution");
  }

 private:
  static MatmulShape strip_of(const Key& key, std::int64_t begin, std::int64_t end) {
    MatmulShape strip = key.shape;
    (key.cut.by_rows ? strip.m : strip.n) = end - begin;
    return strip;
  }

  explicit Prepared(const dnnl::matmul::primitive_desc& description)
      : primitive_(description),
        scratch_bytes_(static_cast<std::int64_t>(description.scratchpad_desc().get_size())) {
    add(DNNL_ARG_SRC, description.src_desc());
    add(DNNL_ARG_WEIGHTS, description.weights_desc());
    add(DNNL_ARG_DST, description.dst_desc());
    add(DNNL_ARG_SCRATCHPAD, description.scratchpad_desc());
    add(DNNL_ARG_BIAS, description.bias_desc());
  }

  void add(int argument, const dnnl::memory::desc& layout) {
    memories_.emplace_back(layout, onednn::engine(), nullptr);
    operands_[memories_.size() - 1] = {argument, memories_.back().get()};
  }

  void point(std::size_t operand, void* data) {
    require_success(dnnl_memory_set_data_handle(operands_[operand].memory, data), "memory");
  }

  dnnl::matmul primitive_;
  dnnl::stream stream_{onednn::engine()};
  std::int64_t scratch_bytes_;
  std::int64_t row_ = 0;
  std::int64_t column_ = 0;
  std::int64_t depth_ = 0;    // depth of the whole product
  std::int64_t columns_ = 0;  // columns of the whole product
  std::vector<dnnl::memory> memories_;
  std::array<dnnl_exec_arg_t, 5> operands_{};
};

/// The primitives that a thread caches between products, for itself and its helper threads. Each
/// rank of a process has its own thread, so ranks do not share this object.
class Products {
 public:
  void run(const Key& key, const OpContext& context, const Matmul& args) {
    const std::vector<std::unique_ptr<Prepared>>& strips = prepared(key);
    const auto count = std::ssize(strips);
    std::int64_t needed = 0;
    for (const auto& strip : strips)
      needed = std::max(needed, round_up(strip->scratch_bytes(), 64));
    std::byte* scratch = context.scratch;
    if (needed * count > context.scratch_bytes) scratch = own_room(needed * count);
    Failure failure;
    parallel_for(count, 1, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t at = first; at < last; ++at) {
        failure.keep(
            [&] { strips[static_cast<std::size_t>(at)]->run(args, scratch + at * needed); });
      }
    });
    failure.rethrow();
  }

 private:
  static constexpr std::size_t max_kept = 512;

  /// Keeps the first exception of several threads.
  class Failure {
   public:
    template <class Body>
    void keep(const Body& body) {
      try {
        body();
      } catch (...) {
        if (!taken_.exchange(true)) first_ = std::current_exception();
      }
    }
    void rethrow() const {
      if (first_) std::rethrow_exception(first_);
    }

   private:
    std::atomic<bool> taken_{false};
    std::exception_ptr first_;
  };

  struct Kept {
    Key key;
    std::vector<std::unique_ptr<Prepared>> strips;
  };

  const std::vector<std::unique_ptr<Prepared>>& prepared(const Key& key) {
    for (const auto& one : kept_) {
      if (one->key == key) return one->strips;
    }
    if (kept_.size() == max_kept) kept_.erase(kept_.begin());
    omp_set_num_threads(1);  // the number of threads for which a primitive is made
    auto made = std::make_unique<Kept>(Kept{key, {}});
    const std::int64_t length = key.cut.by_rows ? key.shape.m : key.shape.n;
    for (std::int64_t begin = 0; begin < length; begin += key.cut.width) {
      const std::int64_t end = std::min(begin + key.cut.width, length);
      made->strips.push_back(std::make_unique<Prepared>(key, begin, end));
    }
    return kept_.emplace_back(std::move(made))->strips;
  }

  std::byte* own_room(std::int64_t bytes) {
    const auto size = static_cast<std::size_t>(bytes);
    if (own_scratch_.size() < size) own_scratch_ = std::vector<std::byte>(size);
    return own_scratch_.data();
  }

  std::vector<std::unique_ptr<Kept>> kept_;
  std::vector<std::byte> own_scratch_;
};

}  // namespace

bool library_divides(const Matmul& args) {
  return !args.transpose_a || strips_worth(args, shape_of(args)) <= 1;
}

void matmul_library(const OpContext& context, const Matmul& args) {
  thread_local Products products;
  try {
    const MatmulShape shape = shape_of(args);
    products.run({shape, cut_of(args, shape)}, context, args);
  } catch (const dnnl::error& failure) {
    throw Error(ExitCode::internal, std::string("[matmul] oneDNN: ") + failure.what() + " for a " +
                                        args.a.shape.to_string() + ", b " +
                                        args.b.shape.to_string());
  }
}

}  // namespace trainctl
