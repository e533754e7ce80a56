// A curve drawn with characters.
#pragma once

#include <string>
#include <vector>

namespace trainctl {

struct PlotSpace {
  int width = 60;    // columns, with the labels
  int height = 6;    // lines
  bool utf8 = true;  // eighths of a block; otherwise "*"
};

/// Lines from the top to the bottom, with the highest value before the first and the lowest before
/// the last. Each column has the mean of the finite values that fall into it. No lines if there is
/// no finite value.
std::vector<std::string> text_plot(const std::vector<double>& values, const PlotSpace& space);

}  // namespace trainctl
