// What an engine for a shape that was not there costs the processor, without running anything: plan for the extents, launches, kernels. Of a GPU that need not
// be here, too.
//
//   octavo_new_shapes MODEL|ENGINE INPUT[,INPUT...] LEAST OPT MOST [--device cuda:sm_90] [--rounds 3] [--effort 0] [--threads 2]
//
// LEAST, OPT, MOST: shapes as 1x3x224x224, of the open inputs, which have the same; of an engine file its range is taken, and they say which shapes are asked for.
// Prints medians over the shapes in ms: processor time of all threads, and the parts of base/first_run.h.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <ctime>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "api/load.h"
#include "api/open_model.h"
#include "api/resizer.h"
#include "api/session.h"
#include "base/first_run.h"

namespace {

using namespace octavo;  // NOLINT

double spent() {
  timespec t{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_nsec) * 1e-6;
}
double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v.empty() ? 0 : v[v.size() / 2];
}
ir::Shape shape_of(const std::string& text) {
  ir::Shape out;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find('x', at), text.size());
    out.push_back(std::stoll(text.substr(at, end - at)));
    at = end + 1;
  }
  return out;
}

int fails(const Error& e) {
  std::fprintf(stderr, "%s\n", e.message.c_str());
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  std::map<std::string, std::string> given{{"--device", "cuda:sm_90"}, {"--rounds", "3"}, {"--effort", "0"}, {"--threads", "2"}};
  std::vector<std::string> words;
  for (int i = 1; i < argc; ++i) {
    if (given.contains(argv[i]) && i + 1 < argc) {
      given[argv[i]] = argv[i + 1];
      ++i;
    } else {
      words.emplace_back(argv[i]);
    }
  }
  if (words.size() != 5) {
    std::fprintf(stderr, "octavo_new_shapes MODEL|ENGINE INPUT[,INPUT...] LEAST OPT MOST\n");
    return 2;
  }
  const ir::Shape least = shape_of(words[2]), opt = shape_of(words[3]), most = shape_of(words[4]);
  std::vector<std::string> names;
  for (std::size_t at = 0; at <= words[1].size();) {
    const std::size_t end = std::min(words[1].find(',', at), words[1].size());
    names.push_back(words[1].substr(at, end - at));
    at = end + 1;
  }
  const auto shapes_of = [&](const ir::Shape& shape) {
    api::Shapes out;
    for (const std::string& name : names) out[name] = shape;
    return out;
  };
  using Made = Result<std::shared_ptr<const engine::Engine>>;
  std::shared_ptr<const api::OpenModel> of_file;
  std::shared_ptr<const api::Resizer> resizer;
  const bool is_file = words[0].ends_with(".engine");
  const auto load = [&]() -> Status {
    api::LoadRequest request;
    request.looks_only = true;
    OCTAVO_TRY(const auto file, api::open_engine_file(words[0], request));
    OCTAVO_TRY(of_file, api::load_open(file, request));
    return {};
  };
  if (!is_file) {
    const auto session = api::Session::open(words[0]);
    if (!session) return fails(session.error());
    const auto inputs = (*session)->inputs();
    if (!inputs) return fails(inputs.error());
    api::PipelineOptions o;
    o.device = given["--device"], o.plan.effort = std::stoi(given["--effort"]), o.plan.threads = std::stoi(given["--threads"]);
    o.import.default_batch = 0, o.import.shapes = shapes_of(opt);
    onnx::LateValues none;
    const auto base = (*session)->build(o, none);
    if (!base) return fails(base.error());
    api::ShapeRanges ranges;
    for (const std::string& name : names) ranges[name] = {least, opt, most};
    auto made = api::Resizer::create(**session, o, *inputs, ranges, o.import.shapes, base->engine, base->decided.front());
    if (!made) return fails(made.error());
    resizer = std::move(*made);
  }
  const auto engine_for = [&](const ir::Shape& shape) -> Made {
    const api::Shapes shapes = shapes_of(shape);
    return is_file ? of_file->at(shapes) : resizer->at(shapes);
  };
  std::vector<ir::Shape> shapes;
  for (std::size_t k = 0; k < least.size(); ++k) {
    constexpr std::int64_t kMost = 32;
    for (std::int64_t v = least[k]; v <= most[k]; v += std::max<std::int64_t>((most[k] - least[k]) / kMost, 1)) {
      shapes.push_back(opt);
      shapes.back()[k] = v;
      if (shapes.back() == opt) shapes.pop_back();
      if (least[k] == most[k]) break;
    }
  }
  const int rounds = std::stoi(given["--rounds"]);
  std::vector<double> total;
  std::array<std::vector<double>, kRunParts.size()> parts;
  for (int round = 0; round < rounds; ++round) {
    std::vector<Made> kept;  // as an open model keeps them
    if (is_file) {           // which keeps engines that it has
      if (const Status loaded = load(); !loaded) return fails(loaded.error());
    }
    for (const ir::Shape& shape : shapes) {
      const auto before = run_part_seconds();
      const double begin = spent();
      const Made engine = engine_for(shape);
      total.push_back(spent() - begin);
      if (!engine) return fails(engine.error());
      kept.push_back(engine);
      const auto after = run_part_seconds();
      for (std::size_t i = 0; i < parts.size(); ++i) parts[i].push_back((after[i] - before[i]) * 1e3);
    }
  }
  std::printf("%zu shapes, processor time %.3f ms (median); wall:", shapes.size(), median(total));
  for (std::size_t i = 0; i < parts.size(); ++i) std::printf(" %s %.3f", kRunParts[i].data(), median(parts[i]));
  std::printf("\n");
  return 0;
}
