// What the first run of a new shape costs on a GPU, whether anything was compiled or timed in it, and how its plan compares with an engine that was built for
// exactly that shape.
//
//   octavo_gpu_shapes MODEL [--tuned 1,8,32] [--shapes 1-32] [--exact 3] [--effort 1] [--later 20] [--cache FILE] [--allow float16] [--most 8x512] [--seconds 500]
//
// A shape is a batch "8", or "8x128" for two open dimensions in the order in which inputs have them. Every input with open dimensions gets them. The model is built
// and tuned for --tuned, and then run for each other of --shapes ("1-32": all between): `first`: the time of its first run, `later`: the median of those behind it.
// --most: the largest shape of a range from 1 on. `emitted`, `compiled`, `timed`: regions, kernels, and regions, in that first run. Then the milliseconds of its parts (base/first_run.h), and their medians. --exact of the shapes, in equal steps, are compared with an engine for the shape alone: outputs (integers
// and bytes: all bits), and the ratio of times in turn. Exit code 1: something was emitted (with --most), compiled or timed, or an output differs.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "base/first_run.h"
#include "cuda/device/compile_plan.h"
#include "cuda/provider.h"
#include "octavo/octavo.h"
#include "tune/measure.h"

namespace {

using octavo::Engine;
using octavo::Shape;
using Point = std::vector<std::int64_t>;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v.empty() ? 0 : v[v.size() / 2];
}

std::vector<Point> points_of(const std::string& text) {
  std::vector<Point> out;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    const std::string one = text.substr(at, end - at);
    if (const std::size_t dash = one.find('-'); dash != std::string::npos) {
      for (int n = std::stoi(one.substr(0, dash)); n <= std::stoi(one.substr(dash + 1)); ++n) out.push_back({n});
    } else {
      Point p;
      for (std::size_t k = 0; k <= one.size();) {
        const std::size_t x = std::min(one.find('x', k), one.size());
        p.push_back(std::stoll(one.substr(k, x - k)));
        k = x + 1;
      }
      out.push_back(std::move(p));
    }
    at = end + 1;
  }
  return out;
}
std::string text_of(const Point& p) {
  std::string out;
  for (const std::int64_t v : p) out += (out.empty() ? "" : "x") + std::to_string(v);
  return out;
}

struct Inputs {
  std::map<std::string, Shape> shapes;
  std::map<std::string, std::vector<std::byte>> bytes;
  std::map<std::string, octavo::ConstView> views;
};
Inputs inputs_of(const Engine& open, const Point& p, unsigned seed) {
  Inputs in;
  std::mt19937 random(seed);
  for (const octavo::TensorInfo& t : open.inputs()) {
    Shape shape = t.shape;
    std::size_t next = 0;
    for (std::int64_t& d : shape) {
      if (d < 0) d = p.at(next++);
    }
    std::size_t count = 1;
    for (const std::int64_t d : shape) count *= static_cast<std::size_t>(d);
    std::vector<std::byte>& to = in.bytes[t.name];
    const std::size_t size = octavo::size_of(t.dtype);
    to.resize(count * size);
    for (std::size_t i = 0; i < count; ++i) {
      const auto whole = static_cast<std::int64_t>(random() % 200);
      const float real = static_cast<float>(random() % 2001) / 1000.0F - 1;
      if (t.dtype == octavo::DType::f32)
        std::memcpy(to.data() + i * size, &real, 4);
      else
        std::memcpy(to.data() + i * size, &whole, size);
    }
    in.shapes[t.name] = shape;
    in.views.emplace(t.name, octavo::ConstView{to.data(), t.dtype, shape});
  }
  return in;
}

/// The largest difference of floats, in units of the largest magnitude; of other types 1 for any.
double difference(const std::map<std::string, octavo::Array>& a, const std::map<std::string, octavo::Array>& b) {
  double worst = 0;
  for (const auto& [name, x] : a) {
    const auto& y = b.at(name);
    if (x.bytes.size() != y.bytes.size()) return 1;
    if (x.bytes == y.bytes) continue;
    if (x.dtype != octavo::DType::f32) return 1;
    double most = 0, off = 0;
    for (std::size_t i = 0; i + 4 <= x.bytes.size(); i += 4) {
      float u = 0, v = 0;
      std::memcpy(&u, x.bytes.data() + i, 4), std::memcpy(&v, y.bytes.data() + i, 4);
      most = std::max(most, std::fabs(static_cast<double>(v))), off = std::max(off, std::fabs(static_cast<double>(u) - v));
    }
    worst = std::max(worst, most > 0 ? off / most : off);
  }
  return worst;
}

}  // namespace

int main(int argc, char** argv) try {
  std::map<std::string, std::string> given{{"--tuned", "1,8,32"}, {"--shapes", "1-32"}, {"--exact", "3"},     {"--effort", "1"},
                                           {"--later", "20"},     {"--cache", ""},      {"--device", "cuda"}, {"--allow", ""},
                                           {"--most", ""},        {"--seconds", "500"}};
  std::string model;
  for (int i = 1; i < argc; ++i) {
    if (given.contains(argv[i]) && i + 1 < argc) {
      given[argv[i]] = argv[i + 1];
      ++i;
    } else {
      model = argv[i];
    }
  }
  octavo::BuildOptions o;
  o.device = given["--device"], o.effort = std::stoi(given["--effort"]), o.timing_cache = given["--cache"], o.most_engines = 64;
  if (!given["--allow"].empty()) o.allowed.insert(given["--allow"]);
  const std::vector<Point> tuned = points_of(given["--tuned"]);
  double begin = now();
  Engine open = Engine::build(model, o);
  if (!given["--most"].empty()) {  // profiles, whose opt shape is the first that is tuned
    Point least(points_of(given["--most"])[0].size(), 1);
    const auto ends = std::array{inputs_of(open, least, 1).shapes, inputs_of(open, tuned[0], 1).shapes,
                                 inputs_of(open, points_of(given["--most"])[0], 1).shapes};
    for (const octavo::TensorInfo& t : open.inputs()) {
      if (ends[0].at(t.name) != ends[2].at(t.name))
        o.profiles[t.name] = {ends[0].at(t.name), ends[1].at(t.name), ends[2].at(t.name)};
    }
    open = Engine::build(model, o);
  }
  for (const Point& p : tuned) (void)open.tune(inputs_of(open, p, 1).shapes);
  std::printf("%s: tuned for %zu shapes in %.1f s, %llu kernels compiled, %llu regions emitted\n", model.c_str(), tuned.size(),
              now() - begin, static_cast<unsigned long long>(octavo::cuda::compilations()),
              static_cast<unsigned long long>(octavo::cuda::emissions()));
  std::vector<Point> shapes = points_of(given["--shapes"]);
  std::erase_if(shapes, [&](const Point& p) { return std::find(tuned.begin(), tuned.end(), p) != tuned.end(); });
  std::shuffle(shapes.begin(), shapes.end(), std::mt19937(5));  // NOLINT: the same order each time
  const int later = std::stoi(given["--later"]);
  for (const Point& p : tuned) (void)open.run(inputs_of(open, p, 2).views);  // contexts, the driver
  std::vector<double> extra;
  std::array<std::vector<double>, octavo::kRunParts.size()> parts;
  std::map<std::string, std::map<std::string, octavo::Array>> outputs;
  bool good = true;
  const double until = now() + std::stod(given["--seconds"]);  // for these runs and those behind them
  for (const Point& p : shapes) {
    if (now() > until) break;
    const Inputs in = inputs_of(open, p, 3);
    const auto compiled = octavo::cuda::compilations(), timed = octavo::tune::measurements(), emitted = octavo::cuda::emissions();
    const auto spent = octavo::run_part_seconds();
    begin = now();
    outputs[text_of(p)] = open.run(in.views);
    const double first = now() - begin;
    const auto more = octavo::cuda::compilations() - compiled, measured = octavo::tune::measurements() - timed,
               again = octavo::cuda::emissions() - emitted;
    const auto spent_now = octavo::run_part_seconds();
    std::vector<double> rest;
    for (int i = 0; i < later; ++i) {
      begin = now();
      (void)open.run(in.views);
      rest.push_back(now() - begin);
    }
    extra.push_back((first - median(rest)) * 1e3);
    good = good && more == 0 && measured == 0 && (again == 0 || given["--most"].empty());
    std::printf("  %-8s first %.2f ms, later %.3f ms, emitted %llu, compiled %llu, timed %llu;", text_of(p).c_str(), first * 1e3,
                median(rest) * 1e3, static_cast<unsigned long long>(again), static_cast<unsigned long long>(more),
                static_cast<unsigned long long>(measured));
    double rest_of_first = first;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const double took = spent_now[i] - spent[i];
      parts[i].push_back(took * 1e3), rest_of_first -= took;
      std::printf(" %s %.2f", octavo::kRunParts[i].data(), took * 1e3);
    }
    std::printf(" other %.2f\n", rest_of_first * 1e3);
    std::fflush(stdout);
  }
  if (!extra.empty())
    std::printf("first run minus later: median %.2f ms, worst %.2f ms of %zu shapes\n", median(extra),
                *std::max_element(extra.begin(), extra.end()), extra.size());
  std::printf("medians of its parts, ms:");
  for (std::size_t i = 0; i < parts.size(); ++i) std::printf(" %s %.2f", octavo::kRunParts[i].data(), median(parts[i]));
  std::printf("\n");
  const auto exact = std::min<std::size_t>(static_cast<std::size_t>(std::stoi(given["--exact"])), shapes.size());
  double product = 0;
  for (std::size_t k = 0; k < exact; ++k) {
    const Point& p = shapes[k * shapes.size() / exact];
    if (now() > until || !outputs.contains(text_of(p))) {
      std::printf("  %s: no time\n", text_of(p).c_str());
      continue;
    }
    const Inputs in = inputs_of(open, p, 3);
    octavo::BuildOptions own = o;
    own.shapes = in.shapes, own.profiles = {};
    const Engine alone = Engine::build(model, own);
    const double off = difference(outputs[text_of(p)], alone.run(in.views));
    std::vector<double> a, b;
    for (int i = 0; i < 5 * later; ++i) {
      begin = now();
      (void)open.run(in.views);
      a.push_back(now() - begin), begin = now();
      (void)alone.run(in.views);
      b.push_back(now() - begin);
    }
    const double ratio = median(a) / median(b);
    product += std::log(ratio);
    good = good && off < 1e-3;
    std::printf(
        "  %-8s %.3f of the engine for this shape alone (%.3f and %.3f ms, copies of inputs and outputs included), outputs differ "
        "by %.2g\n",
        text_of(p).c_str(), ratio, median(a) * 1e3, median(b) * 1e3, off);
    std::fflush(stdout);
  }
  if (exact > 0) std::printf("geometric mean %.3f\n", std::exp(product / static_cast<double>(exact)));
  return good ? 0 : 1;
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 2;
}
