#include "run/views/text_plot.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "formats/print/text.h"

namespace trainctl {

namespace {

constexpr std::array<const char*, 9> eighths{" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
constexpr int scale_width = 9;

/// Means over equal shares of the values; NaN where a share has no finite one.
std::vector<double> columns_of(const std::vector<double>& values, int most) {
  const auto count = std::min(values.size(), static_cast<std::size_t>(std::max(1, most)));
  std::vector<double> columns;
  for (std::size_t column = 0; column < count; ++column) {
    double sum = 0;
    int finite = 0;
    const std::size_t end = values.size() * (column + 1) / count;
    for (std::size_t i = values.size() * column / count; i < end; ++i) {
      if (!std::isfinite(values[i])) continue;
      sum += values[i];
      ++finite;
    }
    columns.push_back(finite > 0 ? sum / finite : std::numeric_limits<double>::quiet_NaN());
  }
  return columns;
}

/// What a cell shows of a bar that is `level` eighths of a line high; `line` counts from the
/// bottom.
const char* cell_of(int level, int line, bool utf8) {
  const int filled = std::clamp(level - 8 * line, 0, 8);
  if (utf8) return eighths[static_cast<std::size_t>(filled)];
  return filled >= 4 || (line == 0 && level > 0) ? "*" : " ";
}

}  // namespace

std::vector<std::string> text_plot(const std::vector<double>& values, const PlotSpace& space) {
  const std::vector<double> columns = columns_of(values, space.width - scale_width);
  double least = std::numeric_limits<double>::infinity();
  double most = -least;
  for (const double value : columns) {
    if (!std::isfinite(value)) continue;
    least = std::min(least, value);
    most = std::max(most, value);
  }
  std::vector<std::string> lines;
  if (most < least) return lines;
  const double range = most > least ? most - least : 1;
  for (int line = space.height - 1; line >= 0; --line) {
    std::string label;
    if (line == 0) label = printed("%.4g", least);
    if (line == space.height - 1) label = printed("%.4g", most);
    std::string text = padded_left(label, scale_width - 1) + " ";
    for (const double value : columns) {
      const double share = std::isfinite(value) ? (value - least) / range : 0;
      const int level =
          std::isfinite(value) ? 1 + static_cast<int>(share * (8 * space.height - 1)) : 0;
      text += cell_of(level, line, space.utf8);
    }
    lines.push_back(text);
  }
  return lines;
}

}  // namespace trainctl
