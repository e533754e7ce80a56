#include "weights/safetensors.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/whole_file.h"

namespace trainctl {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t most_header_bytes = 100'000'000;  // the reference reader's limit

struct DTypeName {
  DType dtype;
  const char* name;
};
constexpr DTypeName dtype_names[] = {
    {DType::f64, "F64"},   {DType::i64, "I64"}, {DType::f32, "F32"}, {DType::i32, "I32"},
    {DType::bf16, "BF16"}, {DType::f16, "F16"}, {DType::u16, "U16"}, {DType::u8, "U8"}};

const char* file_name_of(DType dtype) {
  for (const DTypeName& entry : dtype_names) {
    if (entry.dtype == dtype) return entry.name;
  }
  return "";
}

std::int64_t bytes_of(const TensorToWrite& tensor) {
  return tensor.shape.numel() * size_of(tensor.dtype);
}

std::string header_of(const std::vector<TensorToWrite>& tensors) {
  Json header;
  header["__metadata__"] = {{"format", "pt"}};
  std::int64_t offset = 0;
  for (const TensorToWrite& tensor : tensors) {
    Json shape = Json::array();
    for (int dim = 0; dim < tensor.shape.rank(); ++dim) shape.push_back(tensor.shape[dim]);
    header[tensor.name] = {{"dtype", file_name_of(tensor.dtype)},
                           {"shape", shape},
                           {"data_offsets", {offset, offset + bytes_of(tensor)}}};
    offset += bytes_of(tensor);
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  return text;
}

/// Parses the header and refuses a name that is given twice, which the JSON library would let pass.
Json parse_header(const char* begin, const char* end, const std::string& file) {
  std::set<std::string> seen;
  std::string repeated;
  const Json::parser_callback_t watch = [&](int depth, Json::parse_event_t event, Json& value) {
    if (event == Json::parse_event_t::key && depth == 1 &&
        !seen.insert(value.get<std::string>()).second) {
      repeated = value.get<std::string>();
    }
    return true;
  };
  const Json header = Json::parse(begin, end, watch, false);
  require(header.is_object(), ExitCode::bad_data, file + ": the header is not a JSON object");
  require(repeated.empty(), ExitCode::bad_data,
          file + ": the tensor '" + repeated + "' is given twice");
  return header;
}

DType parse_dtype(const std::string& name, const std::string& where) {
  for (const DTypeName& entry : dtype_names) {
    if (name == entry.name) return entry.dtype;
  }
  throw Error(ExitCode::bad_data, where + ": dtype " + name + " is not one that can be read here");
}

Shape parse_shape(const Json& dims, const std::string& where) {
  require(dims.is_array() && dims.size() <= static_cast<std::size_t>(Shape::max_rank),
          ExitCode::bad_data, where + ": the shape must be a list of at most 4 numbers");
  std::vector<std::int64_t> extents;
  std::int64_t product = 1;
  for (const Json& dim : dims) {
    require(dim.is_number_unsigned(), ExitCode::bad_data, where + ": a dim is not a whole number");
    const std::uint64_t extent = dim.get<std::uint64_t>();
    require(extent < (std::uint64_t{1} << 40) &&
                !__builtin_mul_overflow(product, static_cast<std::int64_t>(extent), &product) &&
                product < (std::int64_t{1} << 56),
            ExitCode::bad_data, where + ": the shape is too large");
    extents.push_back(static_cast<std::int64_t>(extent));
  }
  switch (extents.size()) {
    case 0: return {};
    case 1: return {extents[0]};
    case 2: return {extents[0], extents[1]};
    case 3: return {extents[0], extents[1], extents[2]};
    default: return {extents[0], extents[1], extents[2], extents[3]};
  }
}

}  // namespace

void write_safetensors(const std::filesystem::path& path, std::vector<TensorToWrite> tensors,
                       std::span<std::byte> work) {
  std::sort(tensors.begin(), tensors.end(), [](const TensorToWrite& a, const TensorToWrite& b) {
    const auto width = [](const TensorToWrite& t) { return size_of(t.dtype); };
    return width(a) != width(b) ? width(a) > width(b) : a.name < b.name;
  });
  const std::string header = header_of(tensors);
  WholeFile file(path);
  file.write_value(static_cast<std::uint64_t>(header.size()));
  file.write(header);
  std::int64_t largest = 0;
  for (const TensorToWrite& tensor : tensors) largest = std::max(largest, bytes_of(tensor));
  std::vector<std::byte> own;
  if (std::ssize(work) < largest) {
    own.resize(static_cast<std::size_t>(largest));
    work = own;
  }
  for (const TensorToWrite& tensor : tensors) {
    tensor.fill({work.data(), tensor.shape, tensor.dtype, DeviceKind::cpu});
    const std::span all = work.first(static_cast<std::size_t>(bytes_of(tensor)));
    file.write({reinterpret_cast<const char*>(all.data()), all.size()});
  }
  file.publish();
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : path_(path), mapping_(File::open_to_read(path)) {
  require(!mapping_.bytes().empty(), ExitCode::bad_data,
          path.string() + " is empty or not a regular file");
  read_header();
}

void SafetensorsFile::read_header() {
  const std::string file = path_.string();
  const std::byte* data = mapping_.bytes().data();
  const std::int64_t size = std::ssize(mapping_.bytes());
  std::uint64_t length = 0;
  require(size >= 8, ExitCode::bad_data,
          file + " has " + std::to_string(size) + " bytes, too few for a header");
  std::memcpy(&length, data, sizeof length);
  require(length <= static_cast<std::uint64_t>(most_header_bytes) &&
              static_cast<std::int64_t>(length) <= size - 8,
          ExitCode::bad_data,
          file + ": the file gives the length of its header as " + std::to_string(length) +
              " bytes, the file has " + std::to_string(size));
  const auto* text = reinterpret_cast<const char*>(data + 8);
  const Json header = parse_header(text, text + length, file);
  const std::int64_t start = 8 + static_cast<std::int64_t>(length);
  std::vector<std::pair<std::int64_t, std::int64_t>> pieces;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    const std::string where = file + ": tensor '" + name + "'";
    require(entry.is_object() && entry.contains("dtype") && entry["dtype"].is_string() &&
                entry.contains("shape") && entry.contains("data_offsets") &&
                entry["data_offsets"].is_array() && entry["data_offsets"].size() == 2 &&
                entry["data_offsets"][0].is_number_unsigned() &&
                entry["data_offsets"][1].is_number_unsigned(),
            ExitCode::bad_data, where + " needs dtype, shape and two data_offsets");
    Tensor tensor;
    tensor.dtype = parse_dtype(entry["dtype"].get<std::string>(), where);
    tensor.shape = parse_shape(entry["shape"], where);
    const auto begin = entry["data_offsets"][0].get<std::uint64_t>();
    const auto end = entry["data_offsets"][1].get<std::uint64_t>();
    require(begin <= end && end <= static_cast<std::uint64_t>(size - start) &&
                static_cast<std::int64_t>(end - begin) == tensor.bytes(),
            ExitCode::bad_data,
            where + ": offsets " + std::to_string(begin) + " to " + std::to_string(end) +
                " do not fit its shape " + tensor.shape.to_string() + " or the file");
    tensor.data = const_cast<std::byte*>(data) + start + static_cast<std::int64_t>(begin);
    pieces.emplace_back(begin, end);
    tensors_[name] = tensor;
  }
  std::sort(pieces.begin(), pieces.end());
  std::int64_t reached = 0;
  for (const auto& [begin, end] : pieces) {
    require(begin == reached, ExitCode::bad_data,
            file + ": hole or overlap at byte " + std::to_string(reached) + " of the data");
    reached = end;
  }
  require(start + reached == size, ExitCode::bad_data,
          file + ": the tensors end at byte " + std::to_string(start + reached) + ", the file at " +
              std::to_string(size));
}

Tensor SafetensorsFile::at(const std::string& name) const {
  const auto found = tensors_.find(name);
  require(found != tensors_.end(), ExitCode::bad_data,
          path_.string() + " has no tensor '" + name + "'");
  return found->second;
}

std::vector<std::string> SafetensorsFile::names() const {
  std::vector<std::string> names;
  for (const auto& entry : tensors_) names.push_back(entry.first);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace trainctl
