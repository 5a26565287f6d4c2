#include "onnx/diagnosis/diagnose.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <new>

#include "onnx/import/importer.h"
#include "onnx/model/model_view.h"

namespace octavo::onnx {
namespace {

using Severity = Finding::Severity;

/// All elements of channel c of the data are its zero: then a scale of 0 loses nothing.
bool channel_is_zero(const ir::Tensor& t, std::int64_t axis, std::int64_t entries, std::int64_t c, double zero) {
  const auto rank = static_cast<std::int64_t>(t.shape().size());
  if (axis < 0) axis += rank;
  if (entries > 1 && (axis < 0 || axis >= rank)) return false;
  const std::int64_t stride = entries > 1 ? ir::dense_strides(t.shape())[static_cast<std::size_t>(axis)] : 1;
  for (std::int64_t i = 0; i < t.size(); ++i) {
    if ((entries == 1 || i / stride % entries == c) && t.at(i) != zero) return false;
  }
  return true;
}

/// What is wrong with a scale; "" if nothing.
std::string wrong(double s) {
  if (std::isnan(s)) return "is NaN";
  if (std::isinf(s)) return "is infinite";
  return s == 0 ? "is 0" : "";  // below 0: codes count from the other end
}

struct Counted {
  std::int64_t count = 0, first = -1;
  double value = 0;
  void add(std::int64_t at, double v) {
    if (count++ == 0) first = at, value = v;
  }
  [[nodiscard]] std::string where(std::int64_t entries) const {
    if (entries == 1) return "";
    return count == 1 ? fmt::format(" for channel {}", first)
                      : fmt::format(" for {} of {} channels, the first is {}", count, entries, first);
  }
};

}  // namespace

std::string to_string(const Finding& f) {
  constexpr std::size_t kMost = 4;
  const std::vector<std::string> some(f.nodes.begin(),
                                      f.nodes.begin() + static_cast<std::ptrdiff_t>(std::min(kMost, f.nodes.size())));
  std::string nodes = some.empty() ? "" : fmt::format(" ({})", fmt::join(some, ", "));
  if (f.nodes.size() > kMost) nodes = fmt::format(" ({} and {} more)", fmt::join(some, ", "), f.nodes.size() - kMost);
  return fmt::format("{} [{}] tensor \"{}\"{}: {}", f.severity == Severity::error ? "error" : "warning", f.rule, f.tensor, nodes,
                     f.text);
}

void diagnose_scales(const ModelView& m, const Report& report) {
  std::map<std::string, std::vector<const ScaleUse*>> uses;
  std::vector<std::string> order;
  for (const ScaleUse& u : m.scales()) {
    if (uses[u.scale].empty()) order.push_back(u.scale);
    uses[u.scale].push_back(&u);
  }
  for (const std::string& scale : order) {
    const ir::Tensor* s = m.constant(scale);
    if (s == nullptr || !ir::is_float(s->dtype())) continue;  // computed at run time
    std::vector<std::string> nodes;
    for (const ScaleUse* u : uses[scale]) {
      if (nodes.empty() || nodes.back() != m.name_of(u->node)) nodes.push_back(m.name_of(u->node));
    }
    const auto say = [&](Severity severity, const char* rule, std::string text) {
      report({severity, rule, scale, nodes, std::move(text)});
    };
    const std::int64_t entries = s->size();
    // The smallest normal number of the type that the division is made in.
    const double normal = s->dtype() == ir::DType::f16 ? 6.103515625e-05 : std::numeric_limits<float>::min();
    Counted bad, harmless, denormal;
    for (std::int64_t c = 0; c < entries; ++c) {
      const double v = s->at(c);
      const auto zero_behind = [&](const ScaleUse* u) {
        const ir::Tensor* data = m.constant(u->data);
        const ir::Tensor* zp = m.constant(u->zero_point);
        const double zero = data != nullptr && ir::is_float(data->dtype()) ? 0
                            : zp != nullptr && zp->size() == entries       ? zp->at(c)
                                                                           : 0;
        return data != nullptr && channel_is_zero(*data, u->axis, entries, c, zero);
      };
      if (v == 0 && std::all_of(uses[scale].begin(), uses[scale].end(), zero_behind))
        harmless.add(c, v);
      else if (!wrong(v).empty())
        bad.add(c, v);
      else if (std::abs(v) < normal)
        denormal.add(c, v);
    }
    if (bad.count > 0) {
      say(Severity::error, "scale",
          fmt::format("this scale {}{}; a scale must be finite and not 0. Quantize again; 0 usually means that calibration saw "
                      "only zeros",
                      wrong(bad.value), bad.where(entries)));
    }
    if (harmless.count > 0) {
      say(Severity::warning, "scale",
          fmt::format("this scale is 0{}, where the weights hold only zeros; 1 is used instead", harmless.where(entries)));
    }
    if (denormal.count > 0) {
      say(Severity::warning, "denormal-scale",
          fmt::format(
              "this scale is {}{}, below the smallest normal {} ({}): runtimes that flush denormals to zero divide by 0, and codes "
              "lose precision. Probably calibration saw almost only zeros; quantize again, or leave the tensor in float",
              denormal.value, denormal.where(entries), ir::name_of(s->dtype()), normal));
    }
    for (const ScaleUse* u : uses[scale]) {
      const ir::Tensor* data = m.constant(u->data);
      if (data == nullptr || entries == 1 || s->shape().size() != 1) continue;
      const auto rank = static_cast<std::int64_t>(data->shape().size());
      const std::int64_t axis = u->axis < 0 ? u->axis + rank : u->axis;
      const bool inside = axis >= 0 && axis < rank;
      if (inside && data->shape()[static_cast<std::size_t>(axis)] == entries) continue;
      std::string other;
      for (std::int64_t k = 0; k < rank; ++k) {
        if (data->shape()[static_cast<std::size_t>(k)] == entries) other += fmt::format("{}{}", other.empty() ? "" : " or ", k);
      }
      report({Severity::error,
              "axis",
              scale,
              {m.name_of(u->node)},
              fmt::format("{} scales along axis {} of \"{}\" {}{}{}", entries, u->axis, u->data, ir::to_string(data->shape()),
                          inside ? fmt::format(", where that dimension is {}", data->shape()[static_cast<std::size_t>(axis)])
                                 : ", which has no such dimension",
                          other.empty() ? "; quantize again" : fmt::format("; set axis to {}", other))});
      break;
    }
  }
}

Result<Diagnosis> diagnose(const Parsed& parsed, const DiagnoseOptions& options) {
  Diagnosis out;
  try {
    std::optional<pb::ModelProto> copy;
    OCTAVO_TRY(const pb::ModelProto* model, without_functions(parsed.parts().model, copy));
    const ModelView m(*model, parsed.parts().constants, parsed.folder());
    for (int i = 0; i < m.graph().node_size(); ++i) out.nodes.push_back({m.name_of(i), m.graph().node(i).op_type()});
    const Report report = [&](Finding f) { out.findings.push_back(std::move(f)); };
    diagnose_scales(m, report);
    diagnose_weights(m, report);
    diagnose_biases(m, report);
    diagnose_ranges(m, options, report);
  } catch (const std::bad_alloc&) {
    return fail(ErrorKind::bad_model, "diagnosing the model: its tensors do not fit into memory");
  }
  std::stable_sort(out.findings.begin(), out.findings.end(),
                   [](const Finding& a, const Finding& b) { return a.severity > b.severity; });
  return out;
}

}  // namespace octavo::onnx
