// One line of text for a signal handler: made and written without memory from the heap.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <string_view>

namespace trainctl {

/// Text beyond its space is left out.
class SignalLine {
 public:
  SignalLine& operator<<(std::string_view text) {
    const std::size_t count = std::min(text.size(), bytes_.size() - size_);
    std::copy_n(text.data(), count, bytes_.data() + size_);
    size_ += count;
    return *this;
  }
  SignalLine& operator<<(std::int64_t number) {
    std::array<char, 24> digits{};
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
    return *this << std::string_view(digits.data(), static_cast<std::size_t>(end - digits.data()));
  }
  /// In one piece; an error is nobody's to tell.
  void write_to(int file) const {
    [[maybe_unused]] const ssize_t told = ::write(file, bytes_.data(), size_);
  }

 private:
  std::array<char, 320> bytes_;
  std::size_t size_ = 0;
};

}  // namespace trainctl
