#include "weights/safetensors.h"

#include <algorithm>
#include <cassert>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace trainctl {

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
  std::string text = header.dump();
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
