#include "validate/scatter_plot.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "sim/base/text.h"

namespace zerosim {

namespace {

constexpr double kSide = 640;  ///< of the square in which points lie
constexpr double kLeft = 80, kTop = 50, kRight = 190, kBottom = 60;
/// Colour-blind safe (Okabe and Ito).
constexpr std::array<const char*, 8> kColours = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                                 "#e69f00", "#56b4e9", "#000000", "#999933"};

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

/// The same whole decades on both axes.
class Axes {
 public:
  explicit Axes(const std::vector<ScatterPoint>& points) {
    if (points.empty()) return;
    double low = points.front().x;
    double high = low;
    for (const ScatterPoint& point : points) {
      low = std::min({low, point.x, point.y});
      high = std::max({high, point.x, point.y});
    }
    first_ = static_cast<int>(std::floor(std::log10(low)));
    last_ = std::max(first_ + 1, static_cast<int>(std::ceil(std::log10(high))));
  }

  [[nodiscard]] int first() const { return first_; }
  [[nodiscard]] int last() const { return last_; }
  [[nodiscard]] double x(double value) const { return kLeft + share(value) * kSide; }
  [[nodiscard]] double y(double value) const { return kTop + (1 - share(value)) * kSide; }

 private:
  [[nodiscard]] double share(double value) const {
    return std::clamp((std::log10(value) - first_) / (last_ - first_), 0.0, 1.0);
  }

  int first_ = 0;
  int last_ = 1;
};

std::string line(double x1, double y1, double x2, double y2, const char* style) {
  return format(R"(<line x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}" {}/>)"
                "\n",
                x1, y1, x2, y2, style);
}

std::string text(double x, double y, const char* style, const std::string& words) {
  return format(R"(<text x="{:.1f}" y="{:.1f}" {}>{}</text>)"
                "\n",
                x, y, style, escaped(words));
}

std::string grid(const Axes& axes) {
  std::string out;
  for (int decade = axes.first(); decade <= axes.last(); ++decade) {
    const double value = std::pow(10.0, decade);
    const std::string label = format("{:g}", value);
    out += line(axes.x(value), kTop, axes.x(value), kTop + kSide, R"(stroke="#ddd")");
    out += line(kLeft, axes.y(value), kLeft + kSide, axes.y(value), R"(stroke="#ddd")");
    out += text(axes.x(value), kTop + kSide + 18, R"(text-anchor="middle")", label);
    out += text(kLeft - 8, axes.y(value) + 4, R"(text-anchor="end")", label);
  }
  return out;
}

/// y = factor x within the square.
std::string diagonal(const Axes& axes, double factor, const char* style) {
  const double low = std::pow(10.0, axes.first());
  const double high = std::pow(10.0, axes.last());
  const double from = factor < 1 ? low / factor : low;
  const double to = factor > 1 ? high / factor : high;
  return line(axes.x(from), axes.y(from * factor), axes.x(to), axes.y(to * factor), style);
}

std::map<std::string, const char*> colours_of(const std::vector<ScatterPoint>& points) {
  std::map<std::string, const char*> colours;
  for (const ScatterPoint& point : points) colours.emplace(point.series, nullptr);
  std::size_t next = 0;
  for (auto& [series, colour] : colours) colour = kColours[next++ % kColours.size()];
  return colours;
}

}  // namespace

std::string scatter_svg(const ScatterPlot& plot) {
  const Axes axes(plot.points);
  const std::map<std::string, const char*> colours = colours_of(plot.points);
  const double width = kLeft + kSide + kRight;
  const double height = kTop + kSide + kBottom;
  std::string out = format(
      R"(<svg xmlns="http://www.w3.org/2000/svg" width="{0:.0f}" height="{1:.0f}" viewBox="0 0 {0:.0f} {1:.0f}" font-family="sans-serif" font-size="12">)"
      "\n"
      R"(<rect width="100%" height="100%" fill="white"/>)"
      "\n",
      width, height);
  out += text(kLeft, 28, R"(font-size="16")", plot.title);
  out += grid(axes);
  out += diagonal(axes, 1, R"(stroke="#444")");
  out += diagonal(axes, 1 + plot.band, R"(stroke="#aaa" stroke-dasharray="4 4")");
  out += diagonal(axes, 1 - plot.band, R"(stroke="#aaa" stroke-dasharray="4 4")");
  for (const ScatterPoint& point : plot.points) {
    out += format(
        R"(<circle cx="{:.1f}" cy="{:.1f}" r="3.5" fill="{}" fill-opacity="0.6"><title>{}</title></circle>)"
        "\n",
        axes.x(point.x), axes.y(point.y), colours.at(point.series), escaped(point.name));
  }
  double y = kTop + 10;
  for (const auto& [series, colour] : colours) {
    out += format(R"(<circle cx="{:.1f}" cy="{:.1f}" r="5" fill="{}"/>)"
                  "\n",
                  kLeft + kSide + 20, y - 4, colour);
    out += text(kLeft + kSide + 32, y, "", series);
    y += 20;
  }
  out += text(kLeft + kSide + 14, y + 10, R"(fill="#666")",
              format("dashed: {:+.0f} and -{:.0f} %", plot.band * 100, plot.band * 100));
  out += text(kLeft + kSide / 2, kTop + kSide + 44, R"(text-anchor="middle")", plot.x_label);
  out += format(
      R"svg(<text transform="translate(22 {:.1f}) rotate(-90)" text-anchor="middle">{}</text>)svg"
      "\n",
      kTop + kSide / 2, escaped(plot.y_label));
  return out + "</svg>\n";
}

}  // namespace zerosim
