#include <algorithm>
#include <bit>
#include <numeric>

#include "base/error.h"
#include "comm/group.h"

namespace trainctl {

namespace {

template <class T>
std::vector<T> gather_typed(Group& group, T value) {
  Stream stream(DeviceKind::cpu, "values", Stream::Mode::run_inline);
  std::vector<T> values(static_cast<std::size_t>(group.size()));
  group.all_gather(host_tensor(&value, 1), host_tensor(values.data(), group.size()), stream);
  stream.synchronize();
  return values;
}

}  // namespace

std::vector<double> gather_values(Group& group, double value) {
  return gather_typed<double>(group, value);
}

std::vector<std::uint64_t> gather_values(Group& group, std::uint64_t value) {
  const auto gathered = gather_typed<std::int64_t>(group, std::bit_cast<std::int64_t>(value));
  return {gathered.begin(), gathered.end()};
}

void gather_values(Group& group, std::span<double> mine, std::span<double> all, Stream& stream) {
  group.all_gather(host_tensor(mine.data(), std::ssize(mine)),
                   host_tensor(all.data(), std::ssize(all)), stream);
  stream.synchronize();
}

void broadcast_bytes(Group& group, std::string& bytes, int root) {
  Stream stream(DeviceKind::cpu, "values", Stream::Mode::run_inline);
  std::int64_t length = std::ssize(bytes);
  group.broadcast(host_tensor(&length, 1), root, stream);
  stream.synchronize();
  bytes.resize(static_cast<std::size_t>(length));
  auto* data = reinterpret_cast<std::uint8_t*>(bytes.data());
  group.broadcast(host_tensor(data, length), root, stream);
  stream.synchronize();
}

void share_failure(Group& group, const std::exception_ptr& mine) {
  ExitCode code = ExitCode::ok;
  std::string text;
  try {
    if (mine) std::rethrow_exception(mine);
  } catch (const Error& error) {
    code = error.code();
    text = error.what();
  } catch (const std::exception& error) {
    code = ExitCode::internal;
    text = error.what();
  }
  const std::vector<double> codes = gather_values(group, static_cast<double>(code));
  const auto first = std::find_if(codes.begin(), codes.end(), [](double one) { return one > 0; });
  if (first == codes.end()) return;
  broadcast_bytes(group, text, static_cast<int>(first - codes.begin()));
  if (mine) std::rethrow_exception(mine);
  throw Error(static_cast<ExitCode>(static_cast<int>(*first)), text);
}

std::vector<std::string> gather_bytes(Group& group, std::string mine, int root) {
  const auto lengths = gather_values(group, static_cast<std::uint64_t>(mine.size()));
  const bool receives = group.rank() == root;
  std::vector<std::int64_t> sent(lengths.size());
  std::vector<std::int64_t> received(lengths.size());
  sent[static_cast<std::size_t>(root)] = std::ssize(mine);
  if (receives) received.assign(lengths.begin(), lengths.end());
  std::string all(
      static_cast<std::size_t>(std::accumulate(received.begin(), received.end(), std::int64_t{0})),
      0);
  const auto bytes = [](std::string& text) {
    return host_tensor(reinterpret_cast<std::uint8_t*>(text.data()), std::ssize(text));
  };
  Stream stream(DeviceKind::cpu, "values", Stream::Mode::run_inline);
  group.all_to_all(bytes(mine), sent, bytes(all), received, stream);
  stream.synchronize();
  std::vector<std::string> strings;
  std::size_t begin = 0;
  for (std::size_t rank = 0; receives && rank < received.size(); ++rank) {
    const auto length = static_cast<std::size_t>(received[rank]);
    strings.push_back(all.substr(begin, length));
    begin += length;
  }
  return strings;
}

}  // namespace trainctl
