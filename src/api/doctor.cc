#include "api/doctor.h"

#include <algorithm>

#include "api/convert.h"
#include "api/ranges.h"
#include "api/session.h"
#include "base/read_file.h"

namespace octavo::api {
namespace {

std::vector<Finding> found(Result<onnx::Diagnosis> diagnosis) {
  std::vector<Finding> out;
  for (onnx::Finding& f : take(std::move(diagnosis)).findings) {
    out.push_back({f.severity == onnx::Finding::Severity::error, std::move(f.rule), std::move(f.tensor), std::move(f.nodes),
                   std::move(f.text)});
  }
  return out;
}

}  // namespace

Result<onnx::DiagnoseOptions> diagnose_options(const std::string& calibration, const std::string& minmax) {
  onnx::DiagnoseOptions options;
  if (!minmax.empty() && calibration.empty())
    return fail(ErrorKind::usage, "the min-max table is compared with a calibration table; give both");
  if (!calibration.empty()) {
    OCTAVO_TRY(const std::string text, read_text(calibration, "ranges"));
    OCTAVO_TRY(options.ranges, parse_ranges(text, calibration));
    const std::string line = text.substr(0, text.find('\n'));
    if (line.starts_with("TRT-")) options.algorithm = line.substr(std::min(line.size(), line.find('-', 4) + 1));
  }
  if (!minmax.empty()) {
    OCTAVO_TRY(options.minmax, read_ranges(minmax));
  }
  return options;
}

}  // namespace octavo::api

namespace octavo {

std::vector<Finding> doctor(const std::string& path, const DoctorOptions& options) {
  const auto session = api::take(api::Session::open(path));
  return api::found(session->diagnose(api::take(api::diagnose_options(options.calibration, options.minmax))));
}

std::vector<Finding> doctor(std::span<const std::byte> model, const DoctorOptions& options, const std::string& folder) {
  const auto session = api::take(api::Session::of(model, folder, "the model"));
  return api::found(session->diagnose(api::take(api::diagnose_options(options.calibration, options.minmax))));
}

}  // namespace octavo
