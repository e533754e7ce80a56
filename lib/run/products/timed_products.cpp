#include "run/products/timed_products.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/text.h"
#include "base/units.h"
#include "checkpoint/hash_bytes.h"
#include "checkpoint/manifest.h"
#include "comm/values.h"
#include "device/cuda_device.h"
#include "device/slab.h"

namespace trainctl {

namespace {

using Json = nlohmann::json;

constexpr const char* content_key = "product_algorithms";
constexpr const char* hash_key = "xxh3";

DType type_named(const std::string& name) {
  for (const DType type : {DType::f32, DType::bf16, DType::f16}) {
    if (name == name_of(type)) return type;
  }
  throw Error(ExitCode::bad_data, "no product has elements of type '" + name + "'");
}

Json json_of(const ProductKey& key) {
  return {{"m", key.m},
          {"n", key.n},
          {"k", key.k},
          {"transpose_a", key.transpose_a},
          {"transpose_b", key.transpose_b},
          {"accumulate", key.accumulate},
          {"operand", name_of(key.operand)},
          {"result", name_of(key.result)},
          {"epilogue", key.epilogue},
          {"multiprocessors", key.multiprocessors},
          {"count", key.count},
          {"strides", key.strides},
          {"alignments", key.alignments}};
}

ProductKey key_of(const Json& json) {
  ProductKey key;
  json.at("m").get_to(key.m);
  json.at("n").get_to(key.n);
  json.at("k").get_to(key.k);
  json.at("transpose_a").get_to(key.transpose_a);
  json.at("transpose_b").get_to(key.transpose_b);
  json.at("accumulate").get_to(key.accumulate);
  key.operand = type_named(json.at("operand"));
  key.result = type_named(json.at("result"));
  json.at("epilogue").get_to(key.epilogue);
  json.at("multiprocessors").get_to(key.multiprocessors);
  json.at("count").get_to(key.count);
  json.at("strides").get_to(key.strides);
  json.at("alignments").get_to(key.alignments);
  return key;
}

Json json_of(const ProductAlgorithm& one) {
  return {{"product", json_of(one.product)},
          {"algorithm", one.words},
          {"proposal", one.proposal},
          {"seconds", one.seconds},
          {"first_seconds", one.first_seconds}};
}

ProductAlgorithm algorithm_of(const Json& json) {
  ProductAlgorithm one{.product = key_of(json.at("product"))};
  json.at("algorithm").get_to(one.words);
  json.at("proposal").get_to(one.proposal);
  json.at("seconds").get_to(one.seconds);
  json.at("first_seconds").get_to(one.first_seconds);
  return one;
}

/// The contents of product_algorithms.json.
struct AlgorithmTable {
  std::int64_t library = 0;
  std::string device{};
  std::vector<ProductAlgorithm> algorithms{};
};

std::uint64_t content_hash(const Json& content) {
  return hash_bytes(json_text(content, JsonText::Style::compact));
}

AlgorithmTable table_of(const Json& whole, const std::string& where) {
  const Json& content = whole.at(content_key);
  require(whole.at(hash_key) == content_hash(content), ExitCode::bad_data,
          where + " does not have the hash in it; it was changed or damaged");
  AlgorithmTable table;
  content.at("cublaslt").get_to(table.library);
  content.at("device").get_to(table.device);
  for (const Json& one : content.at("algorithms")) table.algorithms.push_back(algorithm_of(one));
  return table;
}

/// The text of the file, which ends with a hash of its content.
std::string table_text(const AlgorithmTable& table) {
  Json algorithms = Json::array();
  for (const ProductAlgorithm& one : table.algorithms) algorithms.push_back(json_of(one));
  const Json content{
      {"cublaslt", table.library}, {"device", table.device}, {"algorithms", std::move(algorithms)}};
  return json_text(Json{{content_key, content}, {hash_key, content_hash(content)}},
                   JsonText::Style::compact) +
         "\n";
}

/// Reads a text that table_text() wrote. Throws Error{bad_data}; `where` is the name of the file in
/// messages.
AlgorithmTable parse_table(const std::string& text, const std::string& where) {
  try {
    return table_of(Json::parse(text), where);
  } catch (const Json::exception& error) {
    throw Error(ExitCode::bad_data, where + " is damaged: " + error.what());
  }
}

}  // namespace

// The members of products that ranks send to rank 0, which times them.
constexpr auto members_of(const ProductKey*) {
  using Key = ProductKey;
  return std::tuple(&Key::m, &Key::n, &Key::k, &Key::transpose_a, &Key::transpose_b,
                    &Key::accumulate, &Key::operand, &Key::result, &Key::epilogue,
                    &Key::multiprocessors, &Key::count, &Key::strides, &Key::alignments);
}
constexpr auto members_of(const NotedProduct*) {
  return std::tuple(&NotedProduct::product, &NotedProduct::calls);
}

namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr const char* timed_key = "parallel.product_algorithms timed";
constexpr const char* again = "; matrix products are timed again";
constexpr std::int64_t pattern_bytes = std::int64_t{1} << 20;

std::string site_text(std::int64_t library, const std::string& device) {
  return "cuBLASLt " + std::to_string(library) + " on " + device;
}

std::string device_of_rank(const World& world, bool share) {
  const CudaDeviceProperties found =
      cuda_module().properties(cuda_device_of(world.local_rank(), share));
  return formatted("{}, compute capability {}.{}, {} multiprocessors", found.name,
                   found.capability / 10, found.capability % 10, found.multiprocessors);
}

/// Whether all ranks have the same site; if not, logs the difference.
bool are_equal(const std::vector<std::string>& sites) {
  for (std::size_t rank = 1; rank < sites.size(); ++rank) {
    if (sites[rank] == sites[0]) continue;
    log_warning(formatted("{} has no effect: rank 0 has {}, rank {} {}", timed_key, sites[0], rank,
                          sites[rank]));
    return false;
  }
  return true;
}

/// Random values, as bf16 below 1, in pairs as fp32, alone as fp16: zeros are multiplied faster.
void fill(const Tensor& operands) {
  const Slab pattern(DeviceKind::cpu, {{"words", Shape{pattern_bytes}, DType::u8}});
  const Tensor words = pattern.at("words");
  auto* const values = static_cast<bf16*>(words.data);
  std::uint32_t state = 1;
  for (std::int64_t i = 0; i < pattern_bytes / 2; ++i) {
    state = state * 1664525U + 1013904223U;
    values[i] = to_bf16(static_cast<float>(static_cast<std::int32_t>(state)) * 0x1p-31F);
  }
  for (std::int64_t begin = 0; begin < operands.bytes(); begin += pattern_bytes) {
    const std::int64_t count = std::min(pattern_bytes, operands.bytes() - begin);
    copy_now(operands.slice(begin, begin + count), words.slice(0, count));
  }
}

/// Logs the progress: after one second, then at doubling intervals.
class Notices {
 public:
  explicit Notices(std::size_t all) : all_(all) {}
  void tell(std::size_t done) {
    if (seconds() < next_) return;
    next_ = 2 * seconds();
    log_info(formatted("matrix products: {} of {} are timed", done, all_));
  }
  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

 private:
  const Clock::time_point start_ = Clock::now();
  const std::size_t all_;
  double next_ = 1;
};

}  // namespace

TimedProducts::TimedProducts(const Config& config, const Plan& plan, const World& world,
                             Group& everyone)
    : everyone_(everyone) {
  if (plan.device != DeviceKind::cuda) return;
  on_ = config.parallel.product_algorithms == "timed";
  broadcast(everyone_, on_);
  if (!on_) return;
  device_ = device_of_rank(world, shares(plan.share_devices));
  library_ = cuda_products().version();
  const std::vector<std::string> sites = gather(everyone_, site_text(library_, device_));
  if (first()) on_ = are_equal(sites);
  broadcast(everyone_, on_);
}

void TimedProducts::load(const fs::path& checkpoint, const fs::path& run, const Fence& fence) {
  if (!on_) return;
  agree(first() ? stored(checkpoint / saved_products_name) : "", run, fence);
}

void TimedProducts::note() {
  if (on_) cuda_products().note();
}

void TimedProducts::time(const OpContext& context, const fs::path& run, const Fence& fence) {
  if (!on_) return;
  Calls calls;
  for (const auto& noted : gather(everyone_, cuda_products().noted())) {
    for (const NotedProduct& one : noted) calls[one.product] += one.calls;
  }
  for (const ProductAlgorithm& one : algorithms_) calls.erase(one.product);
  agree(calls.empty() ? "" : timed(context, calls), run, fence);
}

/// All ranks use rank 0's text, unless it is empty.
void TimedProducts::agree(std::string text, const fs::path& run, const Fence& fence) {
  broadcast(everyone_, text);
  if (text.empty()) return;
  algorithms_ = parse_table(text, saved_products_name).algorithms;
  cuda_products().use(algorithms_);
  text_ = std::move(text);
  if (!first() || run.empty()) return;
  try {
    write_whole_file(run / saved_products_name, text_, fence);
  } catch (const Error& error) {  // checkpoints store the text as well
    if (error.code() == ExitCode::taken) throw;
    log_warning(error.what());
  }
}

/// On rank 0, the text of a file with algorithms for this library and device; empty if there is
/// none.
std::string TimedProducts::stored(const fs::path& file) const {
  if (kind_of_file(file) == FileKind::none) {
    log_info(file.string() + " is not there" + again);
    return "";
  }
  try {
    const File source = File::open_to_read(file);
    std::string text(static_cast<std::size_t>(source.size()), '\0');
    source.read_at(0, text);
    const AlgorithmTable table = parse_table(text, file.string());
    if (table.library == library_ && table.device == device_) {
      log_info(formatted("matrix products: algorithms of {} are those of {}",
                         table.algorithms.size(), file.string()));
      return text;
    }
    log_warning(file.string() + " is of " + site_text(table.library, table.device) +
                ", and this is " + site_text(library_, device_) + again);
  } catch (const Error& error) {
    log_warning(error.what() + std::string(again));
  }
  return "";
}

/// On rank 0, the text of the table with the missing algorithms added; empty if timing failed.
std::string TimedProducts::timed(const OpContext& context, const Calls& calls) const {
  const CudaProducts& products = cuda_products();
  std::int64_t bytes = 0;
  for (const auto& one : calls) bytes = std::max(bytes, products.operand_bytes(one.first));
  Slab block;
  try {
    block = Slab(DeviceKind::cuda, {{"operands", Shape{bytes}, DType::u8}});
  } catch (const Error& error) {
    log_warning("matrix products are not timed, and computed by the library's first proposals: " +
                std::string(error.what()));
    return "";
  }
  fill(block.at("operands"));
  Notices notices(calls.size());
  AlgorithmTable table{library_, device_, algorithms_};
  std::size_t done = 0;
  std::int64_t changed = 0;
  double before = 0;
  double saved = 0;
  for (const auto& [product, count] : calls) {
    auto* const operands = static_cast<std::byte*>(block.at("operands").data);
    const ProductAlgorithm& one =
        table.algorithms.emplace_back(products.time(context, product, operands));
    if (one.proposal > 0) ++changed;
    before += static_cast<double>(count) * one.first_seconds;
    saved += static_cast<double>(count) * (one.first_seconds - one.seconds);
    notices.tell(++done);
  }
  log_info(formatted(
      "matrix products: {} are timed, in {} and {} of device memory in addition to the planned; {} "
      "change their algorithm, which saves {:.1f} % of the time of all",
      done, format_seconds(notices.seconds()), format_bytes(bytes), changed,
      before > 0 ? 100 * saved / before : 0.0));
  return table_text(table);
}

}  // namespace trainctl
