/// \file
/// Predicted against measured figures as points in an SVG: both axes logarithmic, the diagonal and
/// a band around it.
#pragma once

#include <string>
#include <vector>

namespace zerosim {

struct ScatterPoint {
  double x = 0, y = 0;  ///< above 0
  std::string series;   ///< told apart by colour
  std::string name;     ///< shown when pointed at
};

struct ScatterPlot {
  std::string title, x_label, y_label;
  double band = 0.25;  ///< relative; half-width of the band
  std::vector<ScatterPoint> points;
};

/// A whole SVG document; series in order of name, with a legend.
[[nodiscard]] std::string scatter_svg(const ScatterPlot& plot);

}  // namespace zerosim
