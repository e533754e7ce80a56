#include "ops/cpu/matmul/library.h"

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/parallel_for.h"
#include "ops/cpu/matmul/onednn.h"

namespace trainctl {

namespace {

struct Key {
  MatmulShape shape;
  int threads;
  friend bool operator==(const Key&, const Key&) = default;
};

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

/// A primitive with the memory objects that it runs on; only their addresses change from call to
/// call, so that running it allocates nothing of ours.
class Prepared {
 public:
  explicit Prepared(const MatmulShape& shape) : Prepared(describe(shape)) {}

  std::int64_t scratch_bytes() const { return scratch_bytes_; }

  void run(dnnl_stream_t stream, const Matmul& args, void* scratch) {
    point(0, args.a.data);
    point(1, args.b.data);
    point(2, args.c.data);
    point(3, scratch);
    if (!args.bias.empty()) point(4, args.bias.data);
    require_success(dnnl_primitive_execute(primitive_.get(), stream, args.bias.empty() ? 4 : 5,
                                           operands_.data()),
                    "execution");
  }

 private:
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
  std::int64_t scratch_bytes_;
  std::vector<dnnl::memory> memories_;
  std::array<dnnl_exec_arg_t, 5> operands_{};
};

/// What a thread keeps between products. Each rank of a process has a thread of its own, so nothing
/// here is shared.
class Products {
 public:
  void run(const Key& key, const OpContext& context, const Matmul& args) {
    Prepared& product = prepared(key);
    void* scratch = context.scratch;
    if (product.scratch_bytes() > context.scratch_bytes) {
      grow(static_cast<std::size_t>(product.scratch_bytes()));
      scratch = own_scratch_.data();
    }
    product.run(stream_.get(), args, scratch);
  }

 private:
  static constexpr std::size_t most_kept = 512;

  Prepared& prepared(const Key& key) {
    for (auto& [known, product] : kept_) {
      if (known == key) return *product;
    }
    if (kept_.size() == most_kept) kept_.erase(kept_.begin());
    return *kept_.emplace_back(key, std::make_unique<Prepared>(key.shape)).second;
  }

  void grow(std::size_t bytes) {
    if (own_scratch_.size() < bytes) own_scratch_ = std::vector<std::byte>(bytes);
  }

  dnnl::stream stream_{onednn::engine()};
  std::vector<std::pair<Key, std::unique_ptr<Prepared>>> kept_;
  std::vector<std::byte> own_scratch_;
};

}  // namespace

void matmul_library(const OpContext& context, const Matmul& args) {
  thread_local Products products;
  try {
    products.run({shape_of(args), thread_count()}, context, args);
  } catch (const dnnl::error& failure) {
    throw Error(ExitCode::internal, std::string("[matmul] oneDNN: ") + failure.what() + " for a " +
                                        args.a.shape.to_string() + ", b " +
                                        args.b.shape.to_string());
  }
}

}  // namespace trainctl
