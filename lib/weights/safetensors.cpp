#include "weights/safetensors.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "base/error.h"
#include "base/json_text.h"
#include "base/text.h"

namespace trainctl {

namespace {

using PlainJson = nlohmann::json;

constexpr std::uint64_t max_header_bytes = 100'000'000;  // the reference reader's limit
constexpr int max_header_depth = 4;                      // header, tensor, list, number
constexpr std::size_t max_dims = 8;                      // most dims of any tensor

struct StoredType {
  const char* name;
  int bits;
  std::optional<DType> dtype;
};
const StoredType stored_types[] = {
    {"F64", 64, DType::f64},   {"I64", 64, DType::i64},
    {"F32", 32, DType::f32},   {"I32", 32, DType::i32},
    {"BF16", 16, DType::bf16}, {"F16", 16, DType::f16},
    {"U16", 16, DType::u16},   {"U8", 8, DType::u8},
    {"BOOL", 8, {}},           {"I8", 8, {}},
    {"F8_E5M2", 8, {}},        {"F8_E4M3", 8, {}},
    {"F8_E8M0", 8, {}},        {"F8_E4M3FNUZ", 8, {}},
    {"F8_E5M2FNUZ", 8, {}},    {"I16", 16, {}},
    {"U32", 32, {}},           {"C64", 64, {}},
    {"U64", 64, {}},           {"F4", 4, {}},
    {"F6_E2M3", 6, {}},        {"F6_E3M2", 6, {}},
};

const StoredType& find_type(const std::string& name, const std::string& where) {
  for (const StoredType& type : stored_types) {
    if (name == type.name) return type;
  }
  throw Error(ExitCode::bad_data, where + ": dtype " + name + " is not one of the format");
}

/// Parses the header; refuses duplicate names and deep nesting, which the JSON library accepts.
PlainJson parse_header(const std::string& text, const std::string& file) {
  std::vector<std::set<std::string>> open;
  const PlainJson::parser_callback_t watch = [&](int depth, PlainJson::parse_event_t event,
                                                 PlainJson& value) {
    require(depth <= max_header_depth, ExitCode::bad_data,
            file + ": the header is nested too deeply");
    if (event == PlainJson::parse_event_t::object_start) open.emplace_back();
    if (event == PlainJson::parse_event_t::object_end) open.pop_back();
    if (event == PlainJson::parse_event_t::key) {
      const auto name = value.get<std::string>();
      require(
          open.back().insert(name).second, ExitCode::bad_data,
          file + ": " + (depth == 1 ? "the tensor" : "the key") + " '" + name + "' is given twice");
    }
    return true;
  };
  PlainJson header = PlainJson::parse(text, watch, false);
  // The JSON library would take a byte of 0 for the end of the text.
  require(text.find('\0') == std::string::npos, ExitCode::bad_data,
          file + ": the header has a byte of 0; only spaces may follow its JSON");
  require(!text.empty() && text.front() == '{' && header.is_object(), ExitCode::bad_data,
          file + ": the header is not a JSON object");
  return header;
}

Shape parse_shape(const PlainJson& dims, const std::string& where) {
  require(dims.is_array() && dims.size() <= max_dims, ExitCode::bad_data,
          where + ": the shape must be a list of at most 8 numbers");
  std::vector<std::int64_t> extents;
  std::int64_t product = 1;
  for (const PlainJson& dim : dims) {
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
    case 4: return {extents[0], extents[1], extents[2], extents[3]};
    default: return {product};
  }
}

/// `start`, `size`: the offset of the data in the file, and the size of the file, bytes.
SafetensorsEntry parse_entry(const PlainJson& entry, const std::string& where, std::int64_t start,
                             std::int64_t size) {
  require(entry.is_object() && entry.contains("dtype") && entry["dtype"].is_string() &&
              entry.contains("shape") && entry.contains("data_offsets") &&
              entry["data_offsets"].is_array() && entry["data_offsets"].size() == 2 &&
              entry["data_offsets"][0].is_number_unsigned() &&
              entry["data_offsets"][1].is_number_unsigned(),
          ExitCode::bad_data, where + " needs dtype, shape and two data_offsets");
  const StoredType& type = find_type(entry["dtype"].get<std::string>(), where);
  const Shape shape = parse_shape(entry["shape"], where);
  const auto begin = entry["data_offsets"][0].get<std::uint64_t>();
  const auto end = entry["data_offsets"][1].get<std::uint64_t>();
  const std::int64_t bits = shape.numel() * type.bits;
  require(begin <= end && static_cast<std::uint64_t>(bits) % 8 == 0 &&
              end - begin == static_cast<std::uint64_t>(bits) / 8,
          ExitCode::bad_data,
          formatted("{}: offsets {} to {} do not fit its shape {} of {}", where, begin, end,
                    shape.to_string(), type.name));
  require(end <= static_cast<std::uint64_t>(size - start), ExitCode::bad_data,
          formatted("{}: offsets {} to {} of the data end at byte {}, the file at {}", where, begin,
                    end, static_cast<std::uint64_t>(start) + end, size));
  const bool fits = entry["shape"].size() <= static_cast<std::size_t>(Shape::max_rank);
  return {type.name, fits ? type.dtype : std::nullopt, shape,
          start + static_cast<std::int64_t>(begin), static_cast<std::int64_t>(end - begin)};
}

/// Throws unless the tensors cover the data from `start` to `size`, each byte once.
void check_tiling(const std::map<std::string, SafetensorsEntry>& entries, const std::string& file,
                  std::int64_t start, std::int64_t size) {
  std::vector<std::pair<const SafetensorsEntry*, const std::string*>> order;
  for (const auto& [name, entry] : entries) order.emplace_back(&entry, &name);
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    const auto end = [](const SafetensorsEntry& entry) { return entry.offset + entry.bytes; };
    return a.first->offset != b.first->offset ? a.first->offset < b.first->offset
                                              : end(*a.first) < end(*b.first);
  });
  std::int64_t reached = start;
  for (const auto& [entry, name] : order) {
    require(entry->offset == reached, ExitCode::bad_data,
            formatted("{}: hole or overlap at byte {} of the data: tensor '{}' begins at byte {}",
                      file, reached - start, *name, entry->offset - start));
    reached += entry->bytes;
  }
  require(reached == size, ExitCode::bad_data,
          formatted("{}: the tensors end at byte {}, the file at {}", file, reached, size));
}

}  // namespace

std::map<std::string, SafetensorsEntry> read_safetensors_header(const File& opened) {
  const std::string file = opened.path().string();
  const std::int64_t size = opened.size();
  require(size >= 8, ExitCode::bad_data,
          formatted("{} has {} bytes, too few for a header{}", file, size,
                    size == 0 ? " (it is empty or not a regular file)" : ""));
  std::uint64_t length = 0;
  opened.read_at(0, {reinterpret_cast<char*>(&length), sizeof length});
  require(length <= max_header_bytes && static_cast<std::int64_t>(length) <= size - 8,
          ExitCode::bad_data,
          formatted("{}: the file gives the length of its header as {} bytes, the file has {}",
                    file, length, size));
  std::string text(length, '\0');
  opened.read_at(8, text);
  const PlainJson header = parse_header(text, file);
  const std::int64_t start = 8 + static_cast<std::int64_t>(length);
  std::map<std::string, SafetensorsEntry> entries;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    entries[name] = parse_entry(entry, file + ": tensor '" + name + "'", start, size);
  }
  check_tiling(entries, file, start, size);
  return entries;
}

std::string safetensors_name(DType dtype) {
  for (const StoredType& type : stored_types) {
    if (type.dtype == dtype) return type.name;
  }
  return "";
}

namespace {

using Json = nlohmann::ordered_json;

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
    header[tensor.name] = {{"dtype", safetensors_name(tensor.dtype)},
                           {"shape", shape},
                           {"data_offsets", {offset, offset + bytes_of(tensor)}}};
    offset += bytes_of(tensor);
  }
  std::string text = json_text(header, JsonText::Style::compact);
  text.append((8 - text.size() % 8) % 8, ' ');
  return text;
}

}  // namespace

void write_safetensors(const std::filesystem::path& path, std::vector<TensorToWrite> tensors,
                       std::span<std::byte> work, const Fence* fence) {
  std::sort(tensors.begin(), tensors.end(), [](const TensorToWrite& a, const TensorToWrite& b) {
    const auto width = [](const TensorToWrite& t) { return size_of(t.dtype); };
    return width(a) != width(b) ? width(a) > width(b) : a.name < b.name;
  });
  const std::string header = header_of(tensors);
  WholeFile file(path, 0644, fence);
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
    : file_(File::open_to_read(path)), entries_(read_safetensors_header(file_)), mapping_(file_) {}

std::vector<std::string> SafetensorsFile::names() const {
  std::vector<std::string> names;
  for (const auto& entry : entries_) names.push_back(entry.first);
  return names;
}

void SafetensorsFile::read(const SafetensorsEntry& entry, std::int64_t begin,
                           std::span<char> out) const {
  assert(begin >= 0 && begin + std::ssize(out) <= entry.bytes);
  file_.read_at(entry.offset + begin, out);
}

Tensor SafetensorsFile::at(const std::string& name) const {
  const auto found = entries_.find(name);
  require(found != entries_.end(), ExitCode::bad_data,
          path().string() + " has no tensor '" + name + "'");
  const SafetensorsEntry& entry = found->second;
  require(entry.dtype.has_value(), ExitCode::bad_data,
          path().string() + ": tensor '" + name + "' has dtype " + entry.stored +
              ", which cannot be read here");
  return {const_cast<std::byte*>(mapping_.bytes().data()) + entry.offset, entry.shape, *entry.dtype,
          DeviceKind::cpu};
}

}  // namespace trainctl
